"""`deepdraft compare A B`: configurations side by side, from results files or measured in turns."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deepdraft.cli.compare_component import compare_components_of
from deepdraft.cli.connection import add_connection_flags
from deepdraft.cli.output import write_out
from deepdraft.cli.results_path import add_resume_flag
from deepdraft.cli.sweep import add_measure_flags, add_patience_flags
from deepdraft.errors import UsageError
from deepdraft.records import Run
from deepdraft.records.component_file import is_component_file

_ALWAYS = frozenset({"command", "files", "gate", "json", "run", "is_run", "words", "header", "insecure"})
"""What the command line holds without anything being said of a measurement."""


def add_command(commands: Any) -> None:
    """Add `compare` to the command line."""
    parser = commands.add_parser(
        "compare",
        help="say which of two configurations is faster, where, and how sure that is",
        description="Pairs the points of results files by what was asked and gives, per context length, the ratio of "
        "TTFT, ms/token and tokens/step with its interval and a verdict; and the context length beyond which the "
        "second file (B) stops being faster than the first (A). More than two files: the best per context length. "
        "With --run: measures servers in turns, A B B A, so that drift cancels, and compares them; a server is a "
        "URL, or 'embedded' with drafting flags behind it. Files of `bench` are compared case by case. Needs the "
        "extra `analysis`.",
        epilog="Examples: deepdraft compare plain.jsonl drafter.jsonl --gate tpot=5%,ttft=10% | deepdraft compare "
        "--run http://localhost:8000 http://localhost:8001 --context-len 1k-128k*2 | deepdraft compare --run "
        "embedded 'embedded --drafter embedded' --context-len 1k,4k,16k",
    )
    parser.add_argument(
        "files", nargs="*", metavar="FILE", help="results files, the first is the baseline; with --run: servers"
    )
    parser.add_argument(
        "--gate",
        metavar="LIMITS",
        help="tpot=5%%,ttft=10%%: exit with 8 when B is worse by more than that, and the data support it",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object: points and crossover_len")
    _add_run(parser)
    parser.set_defaults(run=run)


def _add_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("measuring, with --run")
    group.add_argument("--run", dest="is_run", action="store_true", help="measure servers in turns")
    group.add_argument(
        "--switch-command",
        metavar="COMMAND",
        help="for one URL: run this before each change of configuration, {} is replaced by A or B; it returns once "
        "the server is started (it may still be loading). Whole rounds are then measured between switches",
    )
    group.add_argument(
        "--out",
        type=Path,
        metavar="PREFIX",
        help="results go to PREFIX-a.jsonl, PREFIX-b.jsonl ... (deepdraft-<time>)",
    )
    add_resume_flag(group, "PREFIX", "go on with results files where they stopped; alone, with those of --out")
    group.add_argument("--quiet", action="store_true", default=None, help="no progress on standard error")
    add_measure_flags(parser.add_argument_group("what is measured, with --run (4 repeats)"))
    add_connection_flags(parser)
    add_patience_flags(parser.add_argument_group("patience, with --run"))


def run(namespace: argparse.Namespace) -> int:
    """Compare, print, and return the exit code."""
    require_analysis()
    _gate_limits(namespace)  # said before anything is measured
    if namespace.is_run:
        return _run_and_compare(namespace)
    said = [name for name, value in vars(namespace).items() if name not in _ALWAYS and value is not None]
    if said:
        flag = said[0].removeprefix("num_").removesuffix("_depth").replace("_", "-")
        raise UsageError(f"--{flag} is for measuring", hint="add --run and give URLs, or leave it out")
    if len(namespace.files) < 2:
        what = "one file can't be compared" if namespace.files else "nothing to compare"
        raise UsageError(what, hint="deepdraft compare A.jsonl B.jsonl")
    paths = [Path(name) for name in namespace.files]
    if any(map(is_component_file, paths)):
        return compare_components_of(paths, _labels(paths), namespace)
    return _print(namespace, _runs(paths), _labels(paths))


def _run_and_compare(namespace: argparse.Namespace) -> int:
    from deepdraft.cli.compare_run import first_problem, measured
    from deepdraft.cli.main import report_error
    from deepdraft.metrics import points_of

    outcomes, paths = measured(namespace)
    runs = [outcome.run for outcome in outcomes if outcome.run is not None]
    code = 0
    if len(runs) == len(outcomes):
        code = _print(namespace, runs, _labels(paths))
        print(f"results in {', '.join(map(str, paths))}", file=sys.stderr)
        is_flawed = any(run.refusals or any(point.num_failed for point in points_of(run)) for run in runs)
        code = code or int(is_flawed)
    problem = first_problem(outcomes)
    return code if problem is None else report_error(problem)


def _print(namespace: argparse.Namespace, runs: Sequence[Run], labels: Sequence[str]) -> int:
    """Print the runs' comparison in the form asked for; returns the exit code, the gate's included."""
    import json

    from deepdraft.cli.main import EXIT_REGRESSION
    from deepdraft.compare.comparison import compare_runs
    from deepdraft.compare.gate import gate_results
    from deepdraft.compare.json_object import comparison_object
    from deepdraft.compare.table import best_table, comparison_table, gate_table

    limits = _gate_limits(namespace)
    comparisons = [compare_runs(runs[0], other) for other in runs[1:]]
    results = None
    if limits is not None:
        results = [result for comparison in comparisons for result in gate_results(comparison.points, limits)]
    if namespace.json:
        write_out(json.dumps(comparison_object(comparisons, labels, results), indent=2) + "\n")
    else:
        parts = [
            comparison_table(comparison, (labels[0], label))
            for comparison, label in zip(comparisons, labels[1:], strict=True)
        ]
        if len(runs) > 2:
            parts.append(best_table(runs, labels))
        if results is not None:
            parts.append(gate_table(results))
        write_out("\n".join(parts))
    is_worse = any(result.state == "fail" for result in results or ())
    return EXIT_REGRESSION if is_worse else 0


def _gate_limits(namespace: argparse.Namespace) -> Any:
    from deepdraft.compare.gate import gate_limits

    return gate_limits(namespace.gate) if namespace.gate is not None else None


def require_analysis() -> None:
    """Raises UsageError where numpy and scipy are not installed."""
    try:
        import scipy  # noqa: F401
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("numpy", "scipy"):
            raise
        raise UsageError(
            f"compare needs {missing.name}, which is not installed", hint="pip install 'deepdraft[analysis]'"
        ) from None


def _runs(paths: Sequence[Path]) -> list[Run]:
    from deepdraft.records.file import read_run

    runs = []
    for path in paths:
        run = read_run(path)
        for loss in run.damage:
            print(f"deepdraft: {path}: {loss}", file=sys.stderr)
        runs.append(run)
    return runs


def _labels(paths: Sequence[Path]) -> list[str]:
    """The files' names, with their folders where names alone are the same."""
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]
