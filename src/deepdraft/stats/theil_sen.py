"""The median of all slopes between two points (Theil 1950, Sen 1968), with the exact interval of Kendall's S.

Beside a least-squares slope it tells whether single points carry the result: up to 29 % of the points may be wrong.
The interval assumes that errors are as likely above the line as below, and nothing of their shape; it takes five
points at least, since with four no slope can be excluded at 95 %.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import factorial

from deepdraft.stats.interval import LEVEL, Estimate, Interval
from deepdraft.stats.summary import median

_MAX_EXACT = 100
"""Points up to which every slope is looked at: 4,950 of them."""


def theil_sen(points: Sequence[tuple[float, float]]) -> Estimate:
    """The slope through (x, y) points with distinct x.

    Raises ValueError for fewer than two points or more than 100.
    """
    if not 2 <= len(points) <= _MAX_EXACT:
        raise ValueError(f"{len(points)} points; 2 to {_MAX_EXACT} can be used")
    slopes = sorted((y - b) / (x - a) for (a, b), (x, y) in combinations(points, 2))
    value = median(slopes)
    num_cut = _num_cut(len(points))
    if num_cut is None:
        return Estimate(value=value, note=f"no interval: {len(points)} points can't exclude any slope at 95 %")
    return Estimate(
        value=value,
        interval=Interval(
            low=slopes[num_cut],
            high=slopes[-1 - num_cut],
            method="Theil-Sen, exact (Kendall's S); errors as likely above the line as below",
        ),
    )


def _num_cut(num_points: int) -> int | None:
    """How many slopes may be left out at each end at 95 %; None when not even none of them."""
    chances = _inversions(num_points)
    tail, num_cut = 0.0, None
    for num_inversions, num_orders in enumerate(chances):
        tail += num_orders / factorial(num_points)
        if 2 * tail > 1 - LEVEL:
            break
        num_cut = num_inversions
    return num_cut


def _inversions(num_points: int) -> list[int]:
    """In how many orders of the points 0, 1, 2 ... pairs are inverted (Mahonian numbers)."""
    counts = [1]
    for size in range(2, num_points + 1):
        longer = [0] * (len(counts) + size - 1)
        for shift in range(size):
            for index, count in enumerate(counts):
                longer[index + shift] += count
        counts = longer
    return counts
