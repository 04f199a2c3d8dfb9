"""The formats that can be imported, and which of them a file is in: told by its content, never by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from deepdraft.errors import ResultsError, UsageError
from deepdraft.importers import (
    aiperf,
    guidellm,
    llama_bench,
    llama_benchy,
    llamacpp_log,
    sglang_bench,
    sglang_log,
    sglang_one_batch,
    table,
    vllm_bench,
    vllm_log,
)
from deepdraft.importers.document import Document, read_document
from deepdraft.importers.imported import Imported, merged, run_of
from deepdraft.records import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One format."""

    name: str
    """As `--format` takes it."""
    title: str
    recognises: Callable[[Document], bool]
    """Whether a document is surely of this format; never raises."""
    read: Callable[[Document], Imported]
    """Raises ResultsError for a document that is not of this format or holds no point."""


_KINDS = (
    ("sglang-bench-serving", "a result of sglang bench_serving", sglang_bench.recognises, sglang_bench.read),
    (
        "sglang-one-batch",
        "a result of sglang bench_one_batch_server",
        sglang_one_batch.recognises,
        sglang_one_batch.read,
    ),
    ("vllm-bench-serve", "a result of vllm bench serve", vllm_bench.recognises, vllm_bench.read),
    ("llama-bench", "JSON of llama-bench", llama_bench.recognises, llama_bench.read),
    ("llama-benchy", "JSON of llama-benchy", llama_benchy.recognises, llama_benchy.read),
    ("guidellm", "a report of guidellm", guidellm.recognises, guidellm.read),
    ("aiperf", "an export of aiperf", aiperf.recognises, aiperf.read),
    ("sglang-log", "the log of an SGLang server", sglang_log.recognises, sglang_log.read),
    ("vllm-log", "the log of a vLLM server", vllm_log.recognises, vllm_log.read),
    ("llamacpp-log", "the log of a llama.cpp server", llamacpp_log.recognises, llamacpp_log.read),
    ("table", "a table typed in as TOML", table.recognises, table.read),
)
FORMATS: dict[str, Format] = {
    name: Format(name=name, title=title, recognises=recognises, read=read) for name, title, recognises, read in _KINDS
}


def format_of(document: Document, name: str = "auto") -> Format:
    """The format a document is in, or the one that was named.

    Raises UsageError for an unknown name, ResultsError when no format fits or the named one doesn't.
    """
    fitting = [known for known in FORMATS.values() if known.recognises(document)]
    if name == "auto":
        if fitting:
            return fitting[0]
        raise ResultsError(_foreign(document), hint=f"name the format: --format {' | '.join(FORMATS)}")
    if name not in FORMATS:
        raise UsageError(f"unknown format {name!r}", hint=f"one of: auto, {', '.join(FORMATS)}")
    if fitting and FORMATS[name] not in fitting:
        raise ResultsError(
            f"{document.name} is not {FORMATS[name].title}: it looks like {fitting[0].title}",
            hint=f"--format {fitting[0].name}, or leave --format out",
        )
    return FORMATS[name]


def import_file(
    *paths: Path, name: str = "auto", command_line: tuple[str, ...] = (), created_at: str | None = None
) -> Run:
    """Read a foreign file, or several of one tool, into a run; what could not be used is in the notes with the topic
    `loss`.

    Raises ResultsError when a file can't be read, is in no known format, or holds no point.
    """
    documents = [read_document(path) for path in paths]
    parts = [_imported(path, document, name) for path, document in zip(paths, documents, strict=True)]
    if len(parts) > 1:
        parts = [
            replace(part, losses=tuple(f"{path.name}: {loss}" for loss in part.losses))
            for path, part in zip(paths, parts, strict=True)
        ]
    run = run_of(
        merged(parts) if len(parts) > 1 else parts[0],
        path=", ".join(document.name for document in documents),
        sha256=documents[0].sha256 if len(documents) == 1 else None,
        command_line=command_line,
        created_at=created_at,
    )
    try:
        for line in (run.header, *run.reported, *run.notes):  # a typed-in table can hold anything
            msgspec.convert(msgspec.to_builtins(line), type(line))
    except (msgspec.ValidationError, TypeError) as error:
        raise ResultsError(f"{paths[0]}: {error}") from None
    return run


def _imported(path: Path, document: Document, name: str) -> Imported:
    if document.text.startswith('{"kind":"header"'):
        raise ResultsError(f"{path} is a Deepdraft results file already", hint=f"deepdraft show {path}")
    imported = format_of(document, name).read(document)
    if document.objects:
        imported = replace(imported, losses=(*document.losses, *imported.losses))
    if not imported.lines and not imported.notes:
        raise ResultsError(f"{path}: {imported.tool} left no point in it" + _because(imported.losses))
    return imported


def _foreign(document: Document) -> str:
    if document.losses:
        return f"{document.name} can't be imported: {document.losses[0]}"
    return f"{document.name} is in no format that can be imported"


def _because(losses: tuple[str, ...]) -> str:
    return f" ({losses[0]})" if losses else ""
