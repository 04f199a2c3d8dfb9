"""More than two configurations: the best per context length, and the frontier of TTFT against time a token.

A configuration shares the first place when its difference from the best one can't be told from chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepdraft.compare.comparison import Comparison, compare_runs
from deepdraft.compare.verdict import violated_guards
from deepdraft.metrics import points_of
from deepdraft.records import Run

FIGURES = ("ttft_s", "tpot_s")
"""Both are the better the smaller they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The best configuration for one figure at one point."""

    context_len: int
    """As asked."""
    concurrency: int
    figure: str
    run_index: int
    value: float
    tied: tuple[int, ...]
    """The runs that may be as good, for all that is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """The configurations at one point that no other beats in both TTFT and time a token, by their medians."""

    context_len: int
    concurrency: int
    run_indexes: tuple[int, ...]


def best_of(runs: Sequence[Run]) -> tuple[Best, ...]:
    """The best run per point and figure, where two runs or more have it."""
    medians = _medians(runs)
    comparisons: dict[tuple[int, int], Comparison] = {}
    found = []
    for key in sorted({key for table in medians for key in table}):
        for figure in FIGURES:
            values = {
                index: table[key][figure] for index, table in enumerate(medians) if figure in table.get(key, {})
            }
            if len(values) < 2:
                continue
            first = min(values, key=lambda index: values[index])
            tied = tuple(
                index
                for index in values
                if index != first and _is_tied(_comparison(runs, first, index, comparisons), key, figure)
            )
            found.append(
                Best(
                    context_len=key[0],
                    concurrency=key[1],
                    figure=figure,
                    run_index=first,
                    value=values[first],
                    tied=tied,
                )
            )
    return tuple(found)


def frontier_of(runs: Sequence[Run]) -> tuple[Frontier, ...]:
    """Per point, the runs that no other run beats in both figures."""
    medians = _medians(runs)
    frontiers = []
    for key in sorted({key for table in medians for key in table}):
        rows = {
            index: (table[key]["ttft_s"], table[key]["tpot_s"])
            for index, table in enumerate(medians)
            if {"ttft_s", "tpot_s"} <= table.get(key, {}).keys()
        }
        kept = tuple(
            index
            for index, row in rows.items()
            if not any(other != row and other[0] <= row[0] and other[1] <= row[1] for other in rows.values())
        )
        if len(rows) > 1:
            frontiers.append(Frontier(context_len=key[0], concurrency=key[1], run_indexes=kept))
    return tuple(frontiers)


def _medians(runs: Sequence[Run]) -> list[dict[tuple[int, int], dict[str, float]]]:
    """Per run, point and figure; without figures that a violated guard puts in doubt, and without points of which a
    run has several."""
    tables = []
    for run in runs:
        points = points_of(run)
        table: dict[tuple[int, int], dict[str, float]] = {}
        for point in points:
            if sum(other.key == point.key for other in points) == 1:
                doubted = violated_guards(run, point, ignore_drift=False)
                table[point.key] = {
                    name: brief.median
                    for name in FIGURES
                    if name not in doubted and (brief := point.summary(name)) is not None
                }
        tables.append(table)
    return tables


def _comparison(runs: Sequence[Run], first: int, other: int, known: dict[tuple[int, int], Comparison]) -> Comparison:
    if (first, other) not in known:
        known[first, other] = compare_runs(runs[first], runs[other])
    return known[first, other]


def _is_tied(comparison: Comparison, key: tuple[int, int], figure: str) -> bool:
    """Whether the other is not worse, for all that is known. What can't be compared is no tie."""
    for point in comparison.points:
        if (point.asked_context_len, point.concurrency) == key:
            verdict = point.verdict(figure)
            return verdict is not None and verdict.answer != "worse"
    return False
