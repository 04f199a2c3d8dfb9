"""The sides of a comparison that is measured: what is asked of each configuration, and what its file holds already.

A configuration is a URL, or an embedded server with its drafting flags in one word: "embedded --drafter ngram". A
comparison that was cut short is gone on with side by side, as `sweep --resume` goes on with one file; where a side's
file was never begun it is begun now, with the settings of the others.
"""

from __future__ import annotations

import argparse
import os
import string
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deepdraft.cli.drafting import embedded_server, is_embedded
from deepdraft.cli.sweep_spec import asked_spec, resumed_spec
from deepdraft.errors import ResultsError, UsageError
from deepdraft.records import Header, Limits, Run, SweepSpec
from deepdraft.records.redact import redacted_text

_NUM_REPEATS = 4
"""Even, so that A B B A is whole."""
_SWITCH_WAIT_S = 900.0
"""How long a server may take to come up after a switch, where --wait-server does not say."""
_NAMES = string.ascii_uppercase
_HINT = "deepdraft compare --run http://localhost:8000 http://localhost:8001, or: embedded 'embedded --drafter ngram'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the configurations that are compared."""

    name: str
    """A, B ..."""
    spec: SweepSpec
    path: Path
    earlier: Run | None = None
    """What its file holds; None: the file is begun now."""

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left to measure."""
        return self.earlier is not None and self.earlier.is_complete


def new_sides(namespace: argparse.Namespace, prefix: Path) -> list[Side]:
    """The sides of a new comparison, A first.

    Raises UsageError for what can't be used or contradicts itself, ResultsError where a file is there already.
    """
    specs = [_new_spec(namespace, server) for server in _servers(namespace)]
    if any(spec.context_lens != specs[0].context_lens for spec in specs):
        raise UsageError("these servers have no lengths in common by default", hint="give --context-len")
    paths = side_paths(prefix)[: len(specs)]
    for path in paths:
        if os.path.lexists(path):
            raise ResultsError(
                f"{path} exists already",
                hint=f"continue it with --run --resume {_stem(prefix)}, or name other files with --out",
            )
    return [Side(name=name, spec=spec, path=path) for name, spec, path in zip(_NAMES, specs, paths, strict=False)]


def resumed_sides(namespace: argparse.Namespace, prefix: Path) -> list[Side]:
    """The sides of a comparison whose files are there, A first.

    Servers that are not named again are those of the first run. Raises UsageError where a flag, a server or the order
    of the servers is another than in the files, or the files are not of one comparison; ResultsError where there is
    none, or one can't be read.
    """
    earlier = _earlier_runs(prefix)
    servers = _servers(namespace) if namespace.files else _recorded_servers(earlier)
    paths = side_paths(prefix)[: len(servers)]
    surplus = [path for path in earlier if path not in paths]
    if surplus:
        raise UsageError(
            f"{len(servers)} servers are given, and {surplus[-1]} is there too",
            hint="give all servers, in the order of the first run, or none",
        )
    headers = [earlier[path].header if path in earlier else None for path in paths]
    if namespace.files:
        _refuse_another_order(servers, headers)
    specs = [
        None if header is None else _resumed_spec(namespace, server, header)
        for server, header in zip(servers, headers, strict=True)
    ]
    reference = next(spec for spec in specs if spec is not None)
    _refuse_different(reference, specs, paths)
    sides = []
    for name, server, spec, path in zip(_NAMES, servers, specs, paths, strict=False):
        if spec is None:
            print(f"{path} does not exist yet: starting it", file=sys.stderr)
            url, flags = _named(server)
            spec = replace(reference, url=url, embedded_flags=flags)
        sides.append(Side(name=name, spec=spec, path=path, earlier=earlier.get(path)))
    return sides


def _earlier_runs(prefix: Path) -> dict[Path, Run]:
    """What the files hold that are there, A's first."""
    from deepdraft.records.file import read_run

    paths = side_paths(prefix)
    found = [path for path in paths if os.path.lexists(path)]
    if not found and os.path.lexists(prefix):
        raise UsageError(
            f"{prefix} is one file: --resume takes what the names of all begin with", hint=_stem_hint(prefix)
        )
    return {path: read_run(path) for path in found or paths[:1]}


def side_paths(prefix: Path) -> list[Path]:
    """PREFIX-a.jsonl, PREFIX-b.jsonl ... as many as there can be."""
    stem = _stem(prefix)
    return [stem.with_name(f"{stem.name}-{name.lower()}.jsonl") for name in _NAMES]


def is_begun(prefix: Path) -> bool:
    """Whether any of the files is there."""
    return any(os.path.lexists(path) for path in side_paths(prefix))


def _stem(prefix: Path) -> Path:
    return prefix.with_suffix("") if prefix.suffix == ".jsonl" else prefix


def _stem_hint(path: Path) -> str | None:
    stem, dash, letter = path.stem.rpartition("-")
    return f"write --resume {path.with_name(stem)}" if dash and len(letter) == 1 else None


# --- what is measured


def _servers(namespace: argparse.Namespace) -> list[str]:
    """What is to be measured, A first: URLs and embedded servers."""
    names: list[str] = list(namespace.files)
    if any("://" not in name and not is_embedded(name) for name in names):
        raise UsageError("--run takes URLs and embedded servers", hint=_HINT)
    if namespace.switch_command is None:
        if not 2 <= len(names) <= len(_NAMES):
            raise UsageError("--run takes two servers or more, or one URL with --switch-command", hint=_HINT)
        return names
    if len(names) != 1 or is_embedded(names[0]):
        raise UsageError("--switch-command is for one server: give one URL")
    if "{}" not in namespace.switch_command:
        raise UsageError(
            "--switch-command does not say where the name goes", hint="write './serve.sh {}': {} is A or B"
        )
    return names * 2


def _recorded_servers(earlier: Mapping[Path, Run]) -> list[str]:
    """The servers on the command line that began the files. A command that was given then is not run unless it is
    given again."""
    from deepdraft.cli.main import parser

    for run in earlier.values():
        words = run.header.command_line[1:]
        if words[:1] != ("compare",):
            continue
        recorded, _ = parser().parse_known_args(words)
        if recorded.switch_command is not None:
            raise UsageError("these servers were switched over", hint="give the URL and --switch-command again")
        if recorded.files:
            return list(recorded.files)
    raise UsageError(
        f"{next(iter(earlier))} does not say which servers were compared", hint="give them again, in the same order"
    )


def _named(server: str) -> tuple[str, tuple[str, ...]]:
    """A server as a spec has it: its URL, and how it drafts where it is an embedded one."""
    return embedded_server(server) if is_embedded(server) else (server, ())


def _new_spec(namespace: argparse.Namespace, server: str) -> SweepSpec:
    url, flags = _named(server)
    facts: dict[str, Any] = {**vars(namespace), "url": url, "embedded": None}
    if namespace.num_repeats is None:
        facts["num_repeats"] = _NUM_REPEATS
    spec = replace(asked_spec(argparse.Namespace(**facts)), embedded_flags=flags)
    if namespace.switch_command is None or namespace.wait_server is not None:
        return spec
    limits: Limits = replace(spec.limits, server_wait_s=_SWITCH_WAIT_S, start_wait_s=_SWITCH_WAIT_S)
    return replace(spec, limits=limits)


def _resumed_spec(namespace: argparse.Namespace, server: str, header: Header) -> SweepSpec:
    """As `sweep --resume` has it; an embedded server that is named again drafts as its name says."""
    is_named = bool(namespace.files)
    url, flags = _named(server) if is_named else (None, ())
    facts = argparse.Namespace(**{**vars(namespace), "url": url, "embedded": None})
    return resumed_spec(facts, header, embedded_flags=flags if is_named and is_embedded(server) else None)


def _refuse_another_order(servers: Sequence[str], headers: Sequence[Header | None]) -> None:
    """Two servers that change places would go on in each other's files."""
    recorded = [None if header is None else (header.spec.url, header.spec.embedded_flags) for header in headers]
    for index, server in enumerate(servers):
        url, flags = _named(server)
        named = (redacted_text(url), flags)
        if recorded[index] not in (None, named) and named in recorded:
            raise UsageError(
                f"{redacted_text(server)} is {_NAMES[recorded.index(named)]} in these files, not {_NAMES[index]}",
                hint="give the servers in the order of the first run, or none",
            )


def _refuse_different(reference: SweepSpec, specs: Sequence[SweepSpec | None], paths: Sequence[Path]) -> None:
    """Files that were measured in other ways are not of one comparison."""
    for spec, path in zip(specs, paths, strict=True):
        if spec is None:
            continue
        if (
            replace(spec, url=reference.url, embedded_flags=reference.embedded_flags, limits=reference.limits)
            != reference
        ):
            raise UsageError(
                f"{path} was made with other settings than {paths[specs.index(reference)]}",
                hint="only the files of one comparison are gone on with",
            )
