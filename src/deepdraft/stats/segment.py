"""The slope between neighbouring points: what a curve does locally, without a law for the whole.

A slope's interval comes from the repeats of its two points (t, the noise pooled over the curve) with rounding added
at its worst; with single rounded values from rounding alone, which is exact: no value within the limits gives
another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from scipy import stats as distributions

from deepdraft.stats.interval import LEVEL, Estimate, Interval
from deepdraft.stats.noise import Noise, median_variance, noise_of
from deepdraft.stats.observed import Observed, by_place


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """From one point to the next."""

    x_low: float
    x_high: float
    slope: Estimate
    """Change of the value over change of x."""
    exponent: Estimate
    """Local exponent: d log(value) / d log(x); 1 is proportional, 2 quadratic."""


def segment_slopes(observed: Sequence[Observed]) -> tuple[Segment, ...]:
    """The segments in ascending order; none with fewer than two places.

    Raises ValueError for values or places that are not above zero.
    """
    places = by_place(tuple(observed))
    noise = noise_of(places)
    return tuple(_segment(left, right, noise) for left, right in pairwise(places))


def _segment(left: Observed, right: Observed, noise: Noise) -> Segment:
    run = right.x - left.x
    log_run = math.log(right.x / left.x)
    left_error, right_error = _error_frac(left, noise), _error_frac(right, noise)
    quantile = float(distributions.t.ppf((1 + LEVEL) / 2, noise.num_free)) if noise.num_free else 0.0
    noise_half = quantile * math.hypot(left.middle * left_error, right.middle * right_error) / run
    log_half = quantile * math.hypot(left_error, right_error) / log_run
    left_low, left_high = left.rounding or (left.middle, left.middle)
    right_low, right_high = right.rounding or (right.middle, right.middle)
    slope, exponent = (right.middle - left.middle) / run, math.log(right.middle / left.middle) / log_run
    method = _method(left, right, noise)
    if method is None:
        return Segment(
            x_low=left.x,
            x_high=right.x,
            slope=Estimate(value=slope, note="no interval: neither repeats nor rounding are known"),
            exponent=Estimate(value=exponent, note="no interval: neither repeats nor rounding are known"),
        )
    tiny = 1e-12 * right.middle
    return Segment(
        x_low=left.x,
        x_high=right.x,
        slope=Estimate(
            value=slope,
            interval=Interval(
                low=(right_low - left_high) / run - noise_half,
                high=(right_high - left_low) / run + noise_half,
                method=method,
            ),
        ),
        exponent=Estimate(
            value=exponent,
            interval=Interval(
                low=math.log(max(right_low, tiny) / left_high) / log_run - log_half,
                high=math.log(right_high / max(left_low, tiny)) / log_run + log_half,
                method=method,
            ),
        ),
    )


def _error_frac(place: Observed, noise: Noise) -> float:
    """The standard error of a place's median, as a share."""
    if noise.sd_frac is None:
        return 0.0
    return noise.sd_frac * math.sqrt(median_variance(place, noise))


def _method(left: Observed, right: Observed, noise: Noise) -> str | None:
    is_rounded = left.rounding is not None and right.rounding is not None
    if noise.sd_frac is not None:
        return "t interval from repeats" + (", rounding added at its worst" if is_rounded else "")
    return "rounding alone, exact; noise is not known and not in it" if is_rounded else None
