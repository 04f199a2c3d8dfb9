"""`deepdraft compare A B` where the files are a component's: case by case."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from deepdraft.cli.output import write_out
from deepdraft.errors import UsageError
from deepdraft.records.component_file import is_component_file, read_component_run


def compare_components_of(paths: Sequence[Path], labels: Sequence[str], namespace: argparse.Namespace) -> int:
    """Print each other file beside the first. Raises UsageError where not all files are of one component, and for a
    gate, which is for sweeps."""
    from deepdraft.compare.component import compare_components
    from deepdraft.compare.component_table import component_comparison_object, component_comparison_table

    sweeps = [label for path, label in zip(paths, labels, strict=True) if not is_component_file(path)]
    if sweeps:
        raise UsageError(f"{sweeps[0]} is no component's results, the other files are", hint="compare like with like")
    if namespace.gate is not None:
        raise UsageError("--gate is for sweeps", hint="leave it out; --json has every interval")
    runs = [read_component_run(path) for path in paths]
    for path, run in zip(paths, runs, strict=True):
        for loss in run.damage:
            print(f"deepdraft: {path}: {loss}", file=sys.stderr)
    comparisons = [compare_components(runs[0], other) for other in runs[1:]]
    if namespace.json:
        write_out(json.dumps(component_comparison_object(comparisons, labels), indent=2) + "\n")
        return 0
    tables = [
        component_comparison_table(comparison, (labels[0], label))
        for comparison, label in zip(comparisons, labels[1:], strict=True)
    ]
    write_out("\n".join(tables))
    return 0
