"""A figure against context length: what was measured, the fitted laws, the device's floors."""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.report.chart import Axis, Chart, Series
from deepdraft.report.chart_words import CONTEXT, about, colour_of, series_name, summary_of
from deepdraft.report.row import Row
from deepdraft.report.subject import Curve, Subject
from deepdraft.report.view import FloorView, LawView, Views


def context_chart(
    subjects: Sequence[Subject], views: Views, figure: str, *, name: str, title: str, y: Axis
) -> Chart | None:
    """One figure of every run against context, with laws and floors; None where no run has it."""
    series: list[Series] = []
    notes: list[str] = []
    for index in range(len(subjects)):
        series += points_series(subjects, index, figure, "measured")
        for law in views.laws:
            if (law.run_index, law.figure) == (index, figure):
                series.append(_law(subjects, law))
                notes += [about(subjects, index, text) for text in (law.formula, *law.doubts)]
        notes += [
            about(subjects, index, f"no law: {one.reason}")
            for one in views.no_laws
            if (one.run_index, one.figure) == (index, figure)
        ]
        for floor in views.floors:
            if (floor.run_index, floor.figure) == (index, figure):
                series.append(_floor(subjects, floor))
                notes.append(about(subjects, index, f"floor: {floor.assumption}"))
    if not any(one.role == "points" for one in series):
        return None
    return Chart(
        name=name,
        title=title,
        summary=summary_of(f"{title} against context length", series, CONTEXT, y),
        x=CONTEXT,
        y=y,
        series=tuple(series),
        notes=tuple(notes),
    )


def points_series(subjects: Sequence[Subject], index: int, figure: str, word: str) -> list[Series]:
    """A series a curve of the run."""
    drawn = [
        _curve(series_name(subjects, index, curve, word), colour_of(subjects, index, place), curve, figure)
        for place, curve in enumerate(subjects[index].curves)
    ]
    return [one for one in drawn if one is not None]


def _curve(name: str, colour_index: int, curve: Curve, figure: str) -> Series | None:
    rows = [row for row in curve.rows if figure in row.point.figures]
    if not rows:
        return None
    ends = [ends_of(row, figure) for row in rows]
    has_ends = any(low != high for low, high in ends)
    return Series(
        name=name,
        role="points",
        colour_index=colour_index,
        xs=tuple(float(row.point.context_len) for row in rows),
        ys=tuple(row.point.figures[figure].summary.median for row in rows),
        lows=tuple(low for low, _ in ends) if has_ends else None,
        highs=tuple(high for _, high in ends) if has_ends else None,
        marks=tuple(row.doubts.mark(figure) for row in rows),
    )


def ends_of(row: Row, figure: str) -> tuple[float, float]:
    """The smallest and largest sample, or what the source's rounding allows where that is wider."""
    known = row.point.figures[figure]
    half_width = known.half_width or 0.0
    return known.summary.low - half_width, known.summary.high + half_width


def _law(subjects: Sequence[Subject], law: LawView) -> Series:
    return Series(
        name=series_name(subjects, law.run_index, None, "fitted law"),
        role="law",
        colour_index=colour_of(subjects, law.run_index),
        xs=law.context_lens,
        ys=law.values,
        lows=law.lows,
        highs=law.highs,
    )


def _floor(subjects: Sequence[Subject], floor: FloorView) -> Series:
    return Series(
        name=series_name(subjects, floor.run_index, None, "device floor"),
        role="floor",
        colour_index=colour_of(subjects, floor.run_index),
        xs=floor.context_lens,
        ys=floor.values,
    )
