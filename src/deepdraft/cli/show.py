"""`deepdraft show FILE`: print what a results file holds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from deepdraft.cli.output import write_out


def add_command(commands: Any) -> None:
    """Add `show` to the command line."""
    parser = commands.add_parser(
        "show",
        help="print a results file again",
        description="Prints the table of a results file again, or its points as JSON or CSV. Works on a file that is "
        "still being written, and on one that was cut short. A file of `bench` has cases in place of points.",
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="written by `deepdraft sweep --out FILE` or `bench`")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="one JSON object: points with figures and guards")
    form.add_argument("--csv", action="store_true", help="one row a point")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Print the file in the form asked for."""
    import json

    from deepdraft.records.component_file import is_component_file
    from deepdraft.records.file import read_run
    from deepdraft.report import results_csv, results_object, results_table

    if is_component_file(namespace.file):
        return _show_component(namespace)
    results = read_run(namespace.file)
    for loss in results.damage:
        print(f"deepdraft: {namespace.file}: {loss}", file=sys.stderr)
    if namespace.json:
        write_out(json.dumps(results_object(results), indent=2) + "\n")
    elif namespace.csv:
        write_out(results_csv(results))
    else:
        write_out(results_table(results))
    return 0


def _show_component(namespace: argparse.Namespace) -> int:
    import json

    from deepdraft.records.component_file import read_component_run
    from deepdraft.report.component_json import component_csv, component_object
    from deepdraft.report.component_table import component_table

    results = read_component_run(namespace.file)
    for loss in results.damage:
        print(f"deepdraft: {namespace.file}: {loss}", file=sys.stderr)
    if namespace.json:
        write_out(json.dumps(component_object(results), indent=2) + "\n")
    elif namespace.csv:
        write_out(component_csv(results))
    else:
        write_out(component_table(results))
    return 0
