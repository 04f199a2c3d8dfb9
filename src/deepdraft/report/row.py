"""A point with its doubts: the row that every table of a run is made of, and what its cells are read from."""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.metrics import Point, points_of
from deepdraft.records import Run
from deepdraft.report.doubt import PointDoubts, point_doubts
from deepdraft.report.number import NOTHING
from deepdraft.units import seconds_text, tokens_text


@dataclass(frozen=True, slots=True)
class Row:
    """One point of a table."""

    point: Point
    doubts: PointDoubts


def rows_of(run: Run) -> list[Row]:
    """Every point of the run, also those without figures."""
    points = points_of(run)
    return [Row(point, point_doubts(run, point, points)) for point in points]


def median_of(point: Point, name: str) -> float | None:
    """The median of a figure; None when it can't be known."""
    brief = point.summary(name)
    return brief.median if brief is not None else None


def median_seconds(point: Point, name: str) -> str:
    """The median of a figure in seconds, as printed."""
    median = median_of(point, name)
    return seconds_text(median) if median is not None else NOTHING


def spread_frac(point: Point) -> float | None:
    """(largest - smallest) / median over a point's samples, of TTFT or time a token, whichever is larger; None for
    fewer than two samples."""
    spreads = [
        spread
        for name in ("ttft_s", "tpot_s")
        if (brief := point.summary(name)) is not None
        and brief.num_samples > 1
        and (spread := brief.spread_frac) is not None
    ]
    return max(spreads, default=None)


def point_name(point: Point, has_concurrency: bool) -> str:
    """`11k`, or `11k x 4` where points differ in concurrency."""
    name = tokens_text(point.context_len)
    return f"{name} x {point.concurrency}" if has_concurrency else name


def have_concurrency(rows: list[Row]) -> bool:
    """Whether any point had several streams."""
    return any(row.point.concurrency != 1 for row in rows)
