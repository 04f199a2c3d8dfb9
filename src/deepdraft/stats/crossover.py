"""The length at which a ratio passes 1: where one configuration stops being faster than the other.

Between neighbouring lengths the log ratio is interpolated along the log of the length, by a monotone cubic through
all points (PCHIP; Fritsch and Carlson) and by straight lines in log length and in length. The interval is what all
three allow when the ratio is anywhere in its own interval at each point, and as far off between the points as the
curve misses a neighbouring point when it is drawn without it (half of that, since the gap is then twice as wide): the
lengths at which 1 can't be excluded (inversion of the band, as in Fieller's theorem). Assumes that the ratio passes 1
once between the points that bracket it.

Points more than a factor of 4 apart locate nothing: the answer is then CannotTell with the points that would.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.interpolate import PchipInterpolator

from deepdraft.stats.interval import CannotTell, Estimate, Interval
from deepdraft.stats.ratio import RatioEstimate

_MAX_GAP = 4.0
_NUM_STEPS = 400
_MISS_PART = 0.5

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioAt:
    """The ratio at one length."""

    x: float
    ratio: RatioEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """The ratio passes 1 at `len`."""

    len: Estimate
    is_rising: bool
    """From below 1 to above 1: a time that grows past the other's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCrossover:
    """The ratio stays on one side of 1 at every length measured, intervals included."""

    lowest: float
    """The shortest length: nothing is known below it."""
    up_to: float
    side: Literal["below", "above"]


def crossover(points: Sequence[RatioAt]) -> Crossover | NoCrossover | CannotTell:
    """Find where the ratio passes 1."""
    known = sorted((point for point in points if point.ratio.interval is not None), key=lambda point: point.x)
    if not known:
        return CannotTell(reason="no ratio has an interval", would_tell="three repeats or more of each configuration")
    sides = [_side(point) for point in known]
    clear = [index for index, side in enumerate(sides) if side]
    changes = [(i, j) for i, j in pairwise(clear) if sides[i] != sides[j]]
    if len(changes) > 1:
        places = ", ".join(f"{known[i].x:,.0f}-{known[j].x:,.0f}" for i, j in changes)
        return CannotTell(
            reason=f"the ratio passes 1 more than once: {places}",
            would_tell="more points there; something other than the length may differ between them",
        )
    if not changes:
        return _one_side(known, sides)
    left, right = changes[0]
    if any(known[index + 1].x > _MAX_GAP * known[index].x for index in range(left, right)):
        return _not_located(known[left].x, known[right].x)
    return _located(known, left, right)


def _side(point: RatioAt) -> int:
    """-1 below 1, +1 above, 0 where its interval has 1."""
    assert point.ratio.interval is not None
    low, high = point.ratio.interval.low, point.ratio.interval.high
    return 1 if low > 1 else -1 if high < 1 else 0


def _one_side(known: Sequence[RatioAt], sides: Sequence[int]) -> NoCrossover | CannotTell:
    if len(known) == 1 and sides[0]:
        return _one_length(known[0].x, sides[0])
    if all(sides):
        return NoCrossover(lowest=known[0].x, up_to=known[-1].x, side="below" if sides[0] < 0 else "above")
    unclear = [point.x for point, side in zip(known, sides, strict=True) if not side]
    lengths = ", ".join(f"{x:,.0f}" for x in unclear)
    if any(sides):
        reason = f"the ratio may be 1 at {lengths}, and on one side of 1 elsewhere"
    else:
        reason = "the ratio may be 1 at every length"
    would_tell = f"more repeats at {lengths}" + (", and a longer point" if not sides[-1] else "")
    between = None
    if any(sides):
        between = min(unclear), max(unclear)
    return CannotTell(reason=reason, would_tell=would_tell, between=between)


def _one_length(x: float, side: int) -> CannotTell:
    """Above 1 it may have passed it at a shorter length, below 1 it may do so at a longer one."""
    propose = (x / 64, x / 16, x / 4) if side > 0 else (2 * x, 4 * x)
    where = "above" if side > 0 else "below"
    return CannotTell(
        reason=f"there is one length to go by, {x:,.0f}, where the ratio is {where} 1",
        would_tell=f"both at {', '.join(f'{each:,.0f}' for each in propose)}",
        propose=propose,
    )


def _not_located(low: float, high: float) -> CannotTell:
    num_points = max(2, math.ceil(math.log(high / low) / math.log(_MAX_GAP)) - 1)
    propose = tuple(low * (high / low) ** (step / (num_points + 1)) for step in range(1, num_points + 1))
    lengths = ", ".join(f"{x:,.0f}" for x in propose)
    return CannotTell(
        reason=f"it passes 1 between {low:,.0f} and {high:,.0f}, with points too far apart to say where",
        would_tell=f"points at {lengths}",
        propose=propose,
        between=(low, high),
    )


def _located(known: Sequence[RatioAt], left: int, right: int) -> Crossover:
    """The crossing between two clear points that are not far apart."""
    log_x = np.log([point.x for point in known])
    middle = np.log([point.ratio.value for point in known])
    sign = 1.0 if middle[right] > middle[left] else -1.0
    intervals = [point.ratio.interval for point in known if point.ratio.interval is not None]
    low, high = (np.log([getattr(interval, end) for interval in intervals]) for end in ("low", "high"))
    early, late = (high, low) if sign > 0 else (low, high)  # which edge of the band meets 1 first
    grid = np.linspace(log_x[left], log_x[right], _NUM_STEPS * (right - left))
    curves = _curves(log_x)
    miss = _miss(log_x, middle, left, right) * _between(grid, log_x)
    first = min(_first_crossing(grid, sign * curve(early)(grid) + miss) for curve in curves)
    last = max(_first_crossing(grid[::-1], (miss - sign * curve(late)(grid))[::-1]) for curve in curves)
    value = _first_crossing(grid, sign * curves[0](middle)(grid))
    return Crossover(
        len=Estimate(
            value=math.exp(value),
            interval=Interval(
                low=math.exp(min(first, value)),
                high=math.exp(max(last, value)),
                method="lengths at which 1 lies in the interpolated band of the ratios; one crossing assumed",
            ),
        ),
        is_rising=sign > 0,
    )


def _miss(log_x: Array, values: Array, left: int, right: int) -> float:
    """How far the curve may be off in the middle of a gap: by what it misses the points about the crossing when it is
    drawn without them. Infinite where there is no point on either side to tell it by."""
    found = []
    for index in range(max(left, 1), min(right, len(log_x) - 2) + 1):
        rest = np.delete(np.arange(len(log_x)), index)
        joined = _curves(log_x[rest])[0](values[rest])
        found.append(abs(float(joined(log_x[[index]])[0] - values[index])) * _MISS_PART)
    return max(found, default=math.inf)


def _between(grid: Array, log_x: Array) -> Array:
    """1 in the middle between two points, 0 at them (a parabola, as the error of a straight line has it)."""
    right = np.clip(np.searchsorted(log_x, grid, side="right"), 1, len(log_x) - 1)
    part = (grid - log_x[right - 1]) / (log_x[right] - log_x[right - 1])
    return np.asarray(np.maximum(4 * part * (1 - part), 1e-12))


Curve = Callable[[Array], Array]


def _curves(log_x: Array) -> tuple[Callable[[Array], Curve], ...]:
    """Three ways to join the points: a monotone cubic, lines in log length, lines in length."""

    def cubic(values: Array) -> Curve:
        joined = PchipInterpolator(log_x, values)
        return lambda grid: np.asarray(joined(grid))

    def lines(values: Array) -> Curve:
        return lambda grid: np.interp(grid, log_x, values)

    def lines_in_length(values: Array) -> Curve:
        return lambda grid: np.interp(np.exp(grid), np.exp(log_x), values)

    return (cubic if len(log_x) > 2 else lines), lines, lines_in_length


def _first_crossing(grid: Array, values: Array) -> float:
    """Where the values first reach 0, walking along the grid; its end when they never do."""
    reached = np.flatnonzero(values >= 0)
    return float(grid[reached[0]]) if len(reached) else float(grid[-1])
