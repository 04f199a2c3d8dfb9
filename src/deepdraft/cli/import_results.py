"""`deepdraft import FILE --out FILE`: another tool's results, a server's log or a typed-in table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

FORMAT_NAMES = (
    "sglang-bench-serving", "sglang-one-batch", "vllm-bench-serve", "llama-bench", "llama-benchy", "guidellm",
    "aiperf", "sglang-log", "vllm-log", "llamacpp-log", "table",
)  # fmt: skip
"""Those of deepdraft.importers, which --help does not load; a test holds them together."""


def add_command(commands: Any) -> None:
    """Add `import` to the command line."""
    parser = commands.add_parser(
        "import",
        help="read another tool's results or a server's log",
        description="Reads what another tool measured into a results file of ours, as far as it carries: what its "
        "file can't tell stays unknown, and known ways in which its figures mislead are named with them. Formats: "
        + ", ".join(FORMAT_NAMES)
        + ". docs/reference/imports.md says what each carries.",
    )
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="a result, a log or a table (TOML); several of one tool and model become one run",
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the results file to write (new)")
    parser.add_argument(
        "--format", default="auto", metavar="NAME", help="auto (from the content; the default) or a format's name"
    )
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Write the results file, and say what was found and what was lost; 1 when something was lost."""
    from deepdraft.importers import import_file
    from deepdraft.records.file import ResultsWriter
    from deepdraft.records.redact import redacted_command_line

    results = import_file(
        *namespace.files, name=namespace.format, command_line=redacted_command_line(namespace.words)
    )
    writer = ResultsWriter.create(namespace.out, results.header)
    try:
        writer.append(*results.reported, *results.notes, *results.ends)
    finally:
        writer.close()
    source = results.header.source
    tool = source.tool if source is not None else "an unknown tool"
    num_points = len(results.reported)
    told = f"{num_points} point{'' if num_points == 1 else 's'}" if num_points else "no points, but the facts"
    print(f"deepdraft: {told} of {tool} written to {namespace.out}", file=sys.stderr)
    losses = [note.message for note in results.notes if note.topic == "loss"]
    for loss in losses:
        print(f"deepdraft: {_one_file(namespace.files)}{loss}", file=sys.stderr)
    return 1 if losses else 0


def _one_file(files: list[Path]) -> str:
    """What a loss is said of; with several files it names its own."""
    return f"{files[0]}: " if len(files) == 1 else ""
