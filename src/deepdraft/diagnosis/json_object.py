"""Findings as one JSON object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from deepdraft.diagnosis.explain import Explanation


def explanations_object(explanations: Sequence[Explanation]) -> dict[str, Any]:
    """`runs`: one entry a run with `name`, `findings` and `attributions`; `findings` holds those of all runs, each
    with the `run` it belongs to."""
    runs = [_run(each) for each in explanations]
    return {
        "findings": [{"run": run["name"], **finding} for run in runs for finding in run["findings"]],
        "runs": runs,
    }


def _run(explanation: Explanation) -> dict[str, Any]:
    return {
        "name": explanation.name,
        "num_points": explanation.num_points,
        "findings": [asdict(finding) for finding in explanation.findings],
        "attributions": [asdict(each) | {"residual_s": each.residual_s} for each in explanation.attributions],
    }
