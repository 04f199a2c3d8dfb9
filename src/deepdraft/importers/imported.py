"""What a format gives back, and the run that is made of it. How a file is found and read is in `document`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from deepdraft.errors import ResultsError
from deepdraft.records import Capabilities, End, Header, Note, Reported, Run, Source, SweepSpec, Ternary
from deepdraft.version import VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """The points of one foreign file, and what it says of its server and of itself."""

    tool: str
    """As the table's heading names it: vllm bench serve, llama-bench ..."""
    lines: tuple[Reported, ...]
    version: str | None = None
    """Of the tool, where its file says."""
    engine: str = "unknown"
    engine_version: str | None = None
    model: str | None = None
    tokenizer: str | None = None
    device: str | None = None
    speculation: Ternary = "unknown"
    speculation_method: str | None = None
    max_context_len: int | None = None
    kv_pool_tokens: int | None = None
    page_size: int | None = None
    num_slots: int | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """The server's configuration, by the engine's own names."""
    doubts: tuple[str, ...] = ()
    """About the server, one sentence each."""
    measured_at: str | None = None
    """ISO 8601, where the file says."""
    text: str = "unknown"
    """Which text was sent, in the tool's words."""
    arrival: str = "closed"
    unknowns: tuple[str, ...] = ()
    """What the file can't tell, one sentence each."""
    traps: tuple[str, ...] = ()
    """Known ways in which the tool's figures mislead, one sentence each."""
    notes: tuple[tuple[str, str], ...] = ()
    """(topic, sentence): what a reader should know besides."""
    losses: tuple[str, ...] = ()
    """What of the file could not be used, one sentence each."""


def merged(parts: Sequence[Imported]) -> Imported:
    """The points of several files of one tool as one set: a tool that writes a file for each length.

    What the files do not agree on is not said any more, with a doubt that names it. Raises ResultsError when they are
    of different tools or models, which are runs of their own.
    """
    first = parts[0]
    for name in ("tool", "model"):
        told = list(dict.fromkeys(getattr(part, name) for part in parts))
        if len(told) > 1:
            raise ResultsError(
                f"the files are of different {name}s: {', '.join(str(one) for one in told)}",
                hint="import each into a file of its own, then compare them",
            )
    joined: dict[str, Any] = {
        name: tuple(dict.fromkeys(entry for part in parts for entry in getattr(part, name)))
        for name in ("doubts", "unknowns", "traps", "notes", "losses")
    }
    changes: dict[str, Any] = {"lines": tuple(line for part in parts for line in part.lines)}
    unlike = []
    for one in fields(Imported):
        if one.name in joined or one.name == "lines":
            continue
        if any(getattr(part, one.name) != getattr(first, one.name) for part in parts):
            changes[one.name] = {} if one.name == "settings" else one.default
            if one.name != "measured_at":  # no fact about the server
                unlike.append(one.name)
    if unlike:
        joined["doubts"] += (f"the files do not agree on {', '.join(unlike)}",)
    return replace(first, **joined, **changes)


def run_of(
    imported: Imported,
    *,
    path: str,
    sha256: str | None,
    command_line: tuple[str, ...] = (),
    created_at: str | None = None,
) -> Run:
    """The run that holds the points. path: the file's name, without its folder, or the names of several; sha256: of
    the one file. created_at: now, when None."""
    server = Capabilities(
        engine=imported.engine,
        detected_by=f"named by {imported.tool}" if imported.engine != "unknown" else "not said",
        version=imported.engine_version,
        model=imported.model,
        tokenizer=imported.tokenizer,
        max_context_len=imported.max_context_len,
        kv_pool_tokens=imported.kv_pool_tokens,
        page_size=imported.page_size,
        num_slots=imported.num_slots,
        speculation=imported.speculation,
        speculation_method=imported.speculation_method,
        settings=imported.settings,
        doubts=imported.doubts,
    )
    header = Header(
        run_id=f"imported-{(sha256 or uuid4().hex)[:12]}",
        created_at=created_at or datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        deepdraft_version=VERSION,
        command_line=command_line,
        spec=_spec(imported),
        capabilities=server,
        source=Source(
            tool=imported.tool,
            version=imported.version,
            path=path,
            sha256=sha256,
            unknowns=imported.unknowns,
            traps=imported.traps,
        ),
    )
    notes = [Note(at_s=0.0, topic=topic, message=message) for topic, message in imported.notes]
    if imported.measured_at is not None:
        notes.append(Note(at_s=0.0, topic="import", message=f"measured at {imported.measured_at}"))
    notes += [Note(at_s=0.0, topic="loss", message=loss) for loss in imported.losses]
    return Run(
        header=header,
        reported=imported.lines,
        notes=tuple(notes),
        ends=(End(at_s=0.0, outcome="complete"),),
    )


def _spec(imported: Imported) -> SweepSpec:
    """What can be said of how the points were asked for; the address is never kept."""
    lens = dict.fromkeys(
        line.asked_context_len or line.context_len
        for line in imported.lines
        if line.asked_context_len or line.context_len
    )
    decode_lens = {line.decode_len for line in imported.lines}
    return SweepSpec(
        url="",
        context_lens=tuple(length for length in lens if length is not None),
        concurrencies=tuple(dict.fromkeys(line.concurrency for line in imported.lines)) or (1,),
        decode_len=decode_lens.pop() if len(decode_lens) == 1 else None,
        num_repeats=1,
        arrival=imported.arrival,
        text=imported.text,
        num_warmups=0,
        device=imported.device,
    )
