"""The one object of `deepdraft compare --json`: plain dicts, lists, strings, numbers and None."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from deepdraft.compare.best import best_of, frontier_of
from deepdraft.compare.comparison import CROSSOVER_FIGURE, ComparedPoint, Comparison
from deepdraft.compare.gate import GateResult
from deepdraft.compare.verdict import Verdict
from deepdraft.compare.words import crossover_text, run_text
from deepdraft.records import Run
from deepdraft.stats.crossover import Crossover, NoCrossover
from deepdraft.stats.interval import Interval

COMPARISON_SCHEMA_VERSION = 1


def comparison_object(
    comparisons: Sequence[Comparison], labels: Sequence[str], results: Sequence[GateResult] | None
) -> dict[str, Any]:
    """The comparisons of every other run with the first, one after the other; `points` and `crossover_len` are those
    of the first of them. results: the gate's, None where no gate was asked."""
    first = comparisons[0]
    runs = [first.before, *(comparison.after for comparison in comparisons)]
    found: dict[str, Any] = {
        "schema_version": COMPARISON_SCHEMA_VERSION,
        "runs": [_run(run, label) for run, label in zip(runs, labels, strict=True)],
        **_comparison(first),
        "gate": None if results is None else [_gate(result) for result in results],
    }
    if len(comparisons) > 1:
        found["comparisons"] = [_comparison(comparison) for comparison in comparisons]
        found["best"] = [
            {
                "asked_context_len": best.context_len,
                "concurrency": best.concurrency,
                "figure": best.figure,
                "run_index": best.run_index,
                "value": best.value,
                "tied": list(best.tied),
            }
            for best in best_of(runs)
        ]
        found["frontier"] = [
            {
                "asked_context_len": frontier.context_len,
                "concurrency": frontier.concurrency,
                "run_indexes": list(frontier.run_indexes),
            }
            for frontier in frontier_of(runs)
        ]
    return found


def _run(run: Run, label: str) -> dict[str, Any]:
    return {"file": label, "run_id": run.header.run_id, "subject": run_text(run)}


def _comparison(comparison: Comparison) -> dict[str, Any]:
    return {
        "points": [_point(point) for point in comparison.points],
        "crossover_len": _crossover_len(comparison),
        "crossover": _crossover(comparison),
        "not_compared": [
            {"asked_context_len": one.context_len, "concurrency": one.concurrency, "reason": one.reason}
            for one in comparison.unpaired
        ],
        "remarks": list(comparison.remarks),
    }


def _point(point: ComparedPoint) -> dict[str, Any]:
    return {
        "context_len": point.context_len,
        "asked_context_len": point.asked_context_len,
        "concurrency": point.concurrency,
        "figures": {verdict.figure: _verdict(verdict) for verdict in point.verdicts},
    }


def _verdict(verdict: Verdict) -> dict[str, Any]:
    ratio = verdict.ratio
    return {
        "before": verdict.before,
        "after": verdict.after,
        "ratio": ratio.value,
        "interval": _interval(ratio.interval),
        "minimum_detectable_frac": ratio.minimum_detectable_frac,
        "num_pairs": ratio.num_pairs,
        "is_interleaved": verdict.is_interleaved,
        "verdict": verdict.answer,
        "text": verdict.text,
        "reason": verdict.reason,
    }


def _interval(interval: Interval | None) -> dict[str, Any] | None:
    if interval is None:
        return None
    return {"low": interval.low, "high": interval.high, "level": interval.level, "method": interval.method}


def _crossover_len(comparison: Comparison) -> dict[str, Any] | None:
    """Value and interval; None when there is none, or none that can be told: `crossover` says which."""
    found = comparison.crossover
    if not isinstance(found, Crossover):
        return None
    return {"value": found.len.value, "interval": _interval(found.len.interval)}


def _crossover(comparison: Comparison) -> dict[str, Any]:
    found = comparison.crossover
    said: dict[str, Any] = {
        "figure": CROSSOVER_FIGURE,
        "concurrency": comparison.crossover_concurrency,
        "text": crossover_text(comparison),
        "left_out": list(comparison.left_out),
    }
    if isinstance(found, Crossover):
        return said | {"state": "located", "is_rising": found.is_rising}
    if isinstance(found, NoCrossover):
        return said | {"state": "none", "lowest": found.lowest, "up_to": found.up_to, "side": found.side}
    return said | {
        "state": "cannot tell",
        "reason": found.reason,
        "would_tell": found.would_tell,
        "propose": [round(x) for x in found.propose],
        "between": list(found.between) if found.between is not None else None,
    }


def _gate(result: GateResult) -> dict[str, Any]:
    return {
        "context_len": result.context_len,
        "concurrency": result.concurrency,
        "figure": result.figure,
        "limit_frac": result.limit_frac,
        "state": result.state,
        "reason": result.reason,
    }
