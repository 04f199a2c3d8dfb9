"""Where a curve leaves its own law: a knee, only when the points carry it.

Two ways, by the number of points:

- any, from four on: a segment whose slope lies a factor of 1.3 beyond every slope before it, intervals counted, and
  changes the value by 5 % at least; and no smooth curve a + b n + c n^2 goes through the points. The knee then lies
  between that segment's ends, no closer.
- eight and more: a line with one bend against the line and the curve, by AICc (corrected for few points; Hurvich and
  Tsai 1989), better by 4 at least; the knee's range is where the bend costs less than 3.84 (profile likelihood).

With fewer than eight points tests for a bend have no power (Davies' test gives p = 0.65 for a slope that doubles at
the last of six points), so they are not asked.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from deepdraft.stats.interval import CannotTell, Estimate, Interval
from deepdraft.stats.noise import noise_of
from deepdraft.stats.observed import Observed, by_place
from deepdraft.stats.segment import Segment, segment_slopes
from deepdraft.stats.summary import median
from deepdraft.stats.weighted_fit import WeightedFit, weighted_fit

Array = NDArray[np.float64]
MIN_RATIO = 1.3
_MIN_CHANGE_FRAC = 0.05
_MIN_PLACES = 4
_MIN_PLACES_HINGE = 8
_CURVE_CHANCE = 0.01
"""That points of a smooth curve would be taken for a knee."""
_MIN_GAIN = 4.0
_PROFILE = 3.84
_NUM_BENDS = 60
_BLIND_RATIO = 2.0
"""A change of slope at the long end that would not have been seen: from here on "no knee" can't be said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knee:
    """The slope changes within `between`."""

    between: tuple[float, float]
    before: Estimate
    """The slope up to there; by segments: their median, with the hull of their intervals."""
    after: Estimate
    ratio: Estimate
    """after / before."""
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoKnee:
    """One law holds up to the longest point."""

    up_to: float
    largest_ratio: float
    """Of the last slope to the law's: what may still hide in the last segment."""
    reason: str


def knee(observed: Sequence[Observed]) -> Knee | NoKnee | CannotTell:
    """Look for the first knee. Raises ValueError for values or places that are not above zero."""
    places = by_place(tuple(observed))
    if len(places) < _MIN_PLACES:
        return _too_few(places)
    segments = segment_slopes(places)
    if len(places) >= _MIN_PLACES_HINGE:
        found = _hinge(places)
        if found is not None:
            return found
    if any(segment.slope.interval is None for segment in segments):
        return CannotTell(
            reason="the slopes have no intervals: neither repeats nor rounding are known",
            would_tell="three repeats of each length",
        )
    noise = noise_of(places)
    line, curve = (weighted_fit(places, noise, num, is_nonnegative=num == 3) for num in (2, 3))
    jump = _first_jump(segments, places)
    is_curve = curve.lack_chance >= _CURVE_CHANCE and len(places) >= _MIN_PLACES_HINGE
    if jump is not None and line.is_lacking and not is_curve:
        return _knee(segments, jump) if curve.lack_chance < _CURVE_CHANCE else _knee_or_curve(segments[jump])
    return _no_knee(segments, line, curve)


# --- by segments


def _first_jump(segments: Sequence[Segment], places: Sequence[Observed]) -> int | None:
    """The first segment, with two before it at least, whose slope lies beyond all of theirs."""
    for index in range(2, len(segments)):
        ends = [_ends(segment) for segment in segments[:index]]
        lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
        low, high = _ends(segments[index])
        run = segments[index].x_high - segments[index].x_low
        usual = median([segment.slope.value for segment in segments[:index]])
        change = abs(segments[index].slope.value - usual) * run
        if change < _MIN_CHANGE_FRAC * places[index + 1].middle:
            continue
        if low > MIN_RATIO * max(highest, 0.0) or (lowest > 0 and high < lowest / MIN_RATIO):
            return index
    return None


def _ends(segment: Segment) -> tuple[float, float]:
    assert segment.slope.interval is not None
    return segment.slope.interval.low, segment.slope.interval.high


def _knee(segments: Sequence[Segment], index: int) -> Knee:
    earlier, segment = segments[:index], segments[index]
    ends = [_ends(one) for one in earlier]
    usual = median([one.slope.value for one in earlier])
    low, high = _ends(segment)
    usual_low, usual_high = median([end[0] for end in ends]), median([end[1] for end in ends])
    method = "slopes of segments with disjoint intervals"
    ratio = Estimate(value=segment.slope.value / usual) if usual > 0 else Estimate(value=math.inf)
    if usual_low > 0:
        bounds = Interval(low=low / usual_high, high=high / usual_low, method=f"{method}, bounds of the quotient")
        ratio = Estimate(value=ratio.value, interval=bounds)
    hull = Interval(
        low=min(end[0] for end in ends), high=max(end[1] for end in ends), method="hull of the slopes before"
    )
    return Knee(
        between=(segment.x_low, segment.x_high),
        before=Estimate(value=usual, interval=hull),
        after=segment.slope,
        ratio=ratio,
        method=method,
    )


def _knee_or_curve(segment: Segment) -> CannotTell:
    middle = (segment.x_low + segment.x_high) / 2
    return CannotTell(
        reason="the slope changes, but a smooth curve a + b n + c n^2 goes through the points as well",
        would_tell=f"a point between {segment.x_low:,.0f} and {segment.x_high:,.0f}, and one beyond",
        propose=(middle, 1.5 * segment.x_high),
        between=(segment.x_low, segment.x_high),
    )


def _no_knee(segments: Sequence[Segment], line: WeightedFit, curve: WeightedFit) -> NoKnee | CannotTell:
    last = segments[-1]
    slope = line.coefficient(1).value
    if line.is_lacking and not curve.is_lacking:
        slope = curve.coefficient(1).value + curve.coefficient(2).value * (last.x_low + last.x_high)
    largest = max(_ends(last)[1] / slope, 0.0) if slope > 0 else math.inf
    if largest > _BLIND_RATIO:
        return CannotTell(
            reason=f"the last slope is too uncertain: it may be {min(largest, 99):.1f} times the law's",
            would_tell=f"more repeats at {last.x_low:,.0f} and {last.x_high:,.0f}",
        )
    if line.is_lacking and curve.is_lacking:
        reason = "no slope lies clearly beyond those before it; but neither a line nor a smooth curve fits"
    else:
        reason = "a smooth curve goes through all points" if line.is_lacking else "one line goes through all points"
    return NoKnee(up_to=last.x_high, largest_ratio=largest, reason=reason)


def _too_few(places: Sequence[Observed]) -> CannotTell:
    reason = f"{len(places)} points: two slopes that differ may be a curve as well as a knee"
    if len(places) < 2:
        return CannotTell(reason=f"{len(places)} points have no slopes to compare", would_tell="five lengths or more")
    left, right = max(pairwise(places), key=lambda pair: pair[1].x - pair[0].x)
    middle, beyond = (left.x + right.x) / 2, 1.5 * places[-1].x
    return CannotTell(
        reason=reason,
        would_tell=f"points at {middle:,.0f} and {beyond:,.0f}",
        propose=(middle, beyond),
    )


# --- by a bend


def _hinge(places: Sequence[Observed]) -> Knee | None:
    """The line with one bend, when it is clearly the best of the three models; weights 1 / value^2 in all of them."""
    x = np.array([place.x for place in places]) / places[-1].x
    root = 1 / np.array([place.middle for place in places])
    columns = [np.ones_like(x), x]
    bends = np.linspace(x[1], x[-2], _NUM_BENDS)
    fits = [_relative_fit([*columns, np.maximum(x - bend, 0.0)], root) for bend in bends]
    squares = np.array([square for _, square in fits])
    best = int(np.argmin(squares))
    others = min(
        _aicc(_relative_fit(columns, root)[1], len(x), 2), _aicc(_relative_fit([*columns, x**2], root)[1], len(x), 3)
    )
    if _aicc(squares[best], len(x), 4) > others - _MIN_GAIN:
        return None
    likely = bends[len(x) * np.log(np.maximum(squares, 1e-30) / max(squares[best], 1e-30)) <= _PROFILE]
    coefficients = fits[best][0] / places[-1].x
    before, after = float(coefficients[1]), float(coefficients[1] + coefficients[2])
    if before > 0 and 1 / MIN_RATIO < after / before < MIN_RATIO:
        return None
    step = float(bends[1] - bends[0])
    method = "a line with one bend, by AICc against line and curve; range by profile likelihood"
    return Knee(
        between=((float(likely.min()) - step) * places[-1].x, (float(likely.max()) + step) * places[-1].x),
        before=Estimate(value=before, note="by the fit; no interval"),
        after=Estimate(value=after, note="by the fit; no interval"),
        ratio=Estimate(value=after / before if before > 0 else math.inf, note="by the fit; no interval"),
        method=method,
    )


def _relative_fit(columns: Sequence[Array], root: Array) -> tuple[Array, float]:
    """Coefficients and the sum of squared relative residuals."""
    rows = np.stack(columns, axis=1) * root[:, None]
    coefficients = np.asarray(np.linalg.lstsq(rows, np.ones_like(root), rcond=None)[0], dtype=np.float64)
    return coefficients, float(np.sum((rows @ coefficients - 1) ** 2))


def _aicc(square: float, num_points: int, num_parameters: int) -> float:
    """With the size of the noise as one more parameter."""
    num = num_parameters + 1
    return (
        num_points * math.log(max(square, 1e-30) / num_points)
        + 2 * num
        + 2 * num * (num + 1) / (num_points - num - 1)
    )
