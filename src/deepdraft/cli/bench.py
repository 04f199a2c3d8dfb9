"""`deepdraft bench NAME`: one component beside what this machine can do and beside a named peer."""

from __future__ import annotations

import argparse
import datetime
import json
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from deepdraft.cli.bench_flags import add_components
from deepdraft.cli.output import write_out
from deepdraft.cli.stop import Stop, stop_signal
from deepdraft.errors import Interrupted, ResultsError
from deepdraft.records.component import ComponentCase, ComponentHeader, ComponentRun
from deepdraft.records.file import ResultsWriter
from deepdraft.records.line import End
from deepdraft.records.redact import redacted_command_line
from deepdraft.version import VERSION

_QUIET_S = 2.0
"""What takes no longer says nothing on the way."""


def add_command(commands: Any) -> None:
    """Add `bench` to the command line."""
    parser = commands.add_parser(
        "bench",
        help="measure one component beside this machine's ceiling and a peer",
        description="Measures one component of the stack or of the client: its time, the share it reaches of what "
        "the machine can do (a copy, a read, a matrix product, measured in the same turn), and how much longer a "
        "named peer takes. Everything takes turns, so that what slows the machine slows all alike. `show` prints a "
        "results file again, `compare` puts two side by side. Ctrl-C keeps what is measured.",
        epilog="Examples: deepdraft bench kernels --context-len 8k,128k --rows 1,16 --out before.jsonl | deepdraft "
        "bench tree --budget 64 | deepdraft bench round --context-len 1k,64k --repeats 3 --json | deepdraft compare "
        "before.jsonl after.jsonl. Each component has its own --help.",
    )
    parser.fill = lambda: add_components(parser)
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Measure, print, and return the exit code. Raises UsageError; Interrupted once what was measured is printed."""
    if namespace.out is not None and namespace.out.exists():
        raise ResultsError(f"{namespace.out} exists already", hint="name another file with --out, or move it away")
    prepared = namespace.prepare(namespace)
    with stop_signal() as stop:
        # What can't be measured is told here, before there is a file.
        cases = prepared.cases(lambda: stop.is_asked, _reporter(is_quiet=namespace.quiet))
        header = ComponentHeader(
            run_id=secrets.token_hex(6),
            created_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds"),
            deepdraft_version=VERSION,
            command_line=redacted_command_line(namespace.words),
            component=namespace.component,
            settings=prepared.settings,
            environment=_environment(prepared.environment),
        )
        writer = ResultsWriter.create(namespace.out, header) if namespace.out is not None else None
        try:
            found = _measured(header, cases, writer, stop)
        finally:
            if writer is not None:
                writer.close()
    _print(found, is_json=namespace.json)
    if stop.is_asked:
        where = f": {namespace.out} has what was measured" if namespace.out is not None else ""
        raise Interrupted(f"interrupted after {len(found.cases)} cases{where}")
    return 0


def _measured(
    header: ComponentHeader, cases: Iterator[ComponentCase], writer: ResultsWriter | None, stop: Stop
) -> ComponentRun:
    """Each case is in the file before the next one begins."""
    started_s = time.monotonic()
    found: list[ComponentCase] = []
    for case in cases:
        found.append(case)
        if writer is not None:
            writer.append(case)
    end = End(
        at_s=time.monotonic() - started_s,
        outcome="interrupted" if stop.is_asked else "complete",
        message="interrupted; the last case may have fewer repeats" if stop.is_asked else None,
    )
    if writer is not None:
        writer.append(end)
    return ComponentRun(header=header, cases=tuple(found), ends=(end,))


def _reporter(*, is_quiet: bool) -> Callable[[str], None]:
    started_s = time.monotonic()

    def report(doing: str) -> None:
        elapsed_s = time.monotonic() - started_s
        if not is_quiet and elapsed_s > _QUIET_S:
            print(f"deepdraft: {elapsed_s:.0f} s: {doing}", file=sys.stderr, flush=True)

    return report


def _environment(of_component: dict[str, Any]) -> dict[str, Any]:
    from deepdraft.bench.environment import environment

    return {**environment(), **of_component}


def _print(run: ComponentRun, *, is_json: bool) -> None:
    from deepdraft.report.component_json import component_object
    from deepdraft.report.component_table import component_table

    write_out(json.dumps(component_object(run), indent=2) + "\n" if is_json else component_table(run))
