"""Throughput against concurrency: output tokens a second of all requests together, a curve a context length."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median_low

from deepdraft.report.chart import Axis, Chart, Series
from deepdraft.report.chart_context import ends_of
from deepdraft.report.chart_words import summary_of
from deepdraft.report.row import Row
from deepdraft.report.subject import Subject
from deepdraft.units import tokens_text

FIGURE = "output_tok_s"


def throughput_chart(subjects: Sequence[Subject]) -> Chart | None:
    """None where no run has one context length at several concurrencies."""
    series: list[Series] = []
    for subject in subjects:
        for name, rows in _curves(subject).items():
            parts = [subject.name, name] if len(subjects) > 1 else [name]
            series.append(_series(", ".join(parts), len(series), rows))
    if not series:
        return None
    x, y = Axis(label="requests at once", kind="count"), Axis(label="output tokens a second", kind="number")
    return Chart(
        name="throughput",
        title="Throughput against concurrency",
        summary=summary_of("Output tokens a second of all requests against concurrency", series, x, y),
        x=x,
        y=y,
        series=tuple(series),
        notes=("Output tokens of all requests over the time from the first one's start to the last one's end.",),
    )


def _curves(subject: Subject) -> dict[str, list[Row]]:
    """Points of one asked length and one workload, where their concurrencies differ; by what tells them apart."""
    groups: dict[tuple[int, str | None], list[Row]] = {}
    for row in subject.rows:
        if FIGURE in row.point.figures:
            workload = row.point.reported.workload if row.point.reported is not None else None
            groups.setdefault((row.point.asked_context_len, workload), []).append(row)
    has_workloads = len({workload for _, workload in groups}) > 1
    curves = {}
    for (_, workload), rows in groups.items():
        if len({row.point.concurrency for row in rows}) > 1:
            # The actual lengths of the points differ by a few tokens: one of them names the curve.
            name = tokens_text(median_low([row.point.context_len for row in rows]))
            curves[f"{name}, text: {workload}" if has_workloads and workload else name] = rows
    return curves


def _series(name: str, colour_index: int, rows: Sequence[Row]) -> Series:
    ordered = sorted(rows, key=lambda row: row.point.concurrency)
    ends = [ends_of(row, FIGURE) for row in ordered]
    has_ends = any(low != high for low, high in ends)
    return Series(
        name=name,
        role="points",
        colour_index=colour_index,
        xs=tuple(float(row.point.concurrency) for row in ordered),
        ys=tuple(row.point.figures[FIGURE].summary.median for row in ordered),
        lows=tuple(low for low, _ in ends) if has_ends else None,
        highs=tuple(high for _, high in ends) if has_ends else None,
        marks=tuple(row.doubts.mark(FIGURE) for row in ordered),
    )
