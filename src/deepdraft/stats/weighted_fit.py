"""Least squares for figures whose errors are a share of the figure, with intervals that say what they rest on.

Shapes: L places, P coefficients. A place's value is the median of its repeats; its standard error is
sd x sqrt(median_variance) x the law's own value there, so weights are 1 / law^2, found by iteration (weights from
the values themselves would favour those that came out low by chance).

Where the size of the noise comes from, best first:

1. repeats, when the points lie no further from the law than the repeats explain (F test, 5 %);
2. the scatter of the points about the law with L - P degrees of freedom: without repeats, and when the law is
   lacking. Repeats at one place are no evidence about the law there: with a wrong law they would make intervals too
   narrow;
3. rounding alone: the exact range by linear programming; where 2 is at hand too, the wider of both.

Rounding beside repeats is added at its worst case.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy import stats as distributions

from deepdraft.stats.interval import LEVEL, Estimate, Interval
from deepdraft.stats.noise import Noise, median_variance
from deepdraft.stats.observed import Observed
from deepdraft.stats.rounding import Array, rounding_range

_LACKING_CHANCE = 0.05
_NUM_STEPS = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """How far a point lies from the law."""

    x: float
    frac: float
    """Value / law - 1."""


@dataclass(frozen=True, slots=True)
class WeightedFit:
    """A polynomial of P coefficients through L places. Arrays are in units of the longest place, `scale`."""

    scale: float
    design: Array
    """[L, P]"""
    values: Array
    """[L] medians"""
    fitted: Array
    """[L]"""
    low: Array
    """[L] limits by rounding; equal to the values where nothing was rounded."""
    high: Array
    spread: Array
    """[L] variance of a place's value over that of one value: median_factor^2 / n, more beside an outlier"""
    coefficients: Array
    """[P], non-negative where that was asked"""
    free_coefficients: Array
    """[P] of the fit without bounds, which the intervals are about"""
    has_rounding: bool
    is_nonnegative: bool
    is_lacking: bool
    """The points lie further from the law than repeats or rounding explain."""
    lack_chance: float
    """That points of this very law would lie as far from it; 0 where rounding alone rules it out, 1 where nothing
    speaks against it."""
    sd_frac: float | None
    num_free: int
    rests_on: str

    def at(self, x: float) -> Estimate:
        """The law's value at x."""
        return self.combination([x**power for power in range(self.design.shape[1])])

    def coefficient(self, power: int) -> Estimate:
        """The coefficient of x^power."""
        return self.combination([float(power == other) for other in range(self.design.shape[1])])

    def combination(self, factors: Sequence[float]) -> Estimate:
        """factors[P] @ coefficients, with its interval."""
        scaled = np.array([factor / self.scale**power for power, factor in enumerate(factors)])
        value = float(scaled @ self.coefficients)
        ends = [end for end in (self._by_noise(scaled), self._by_rounding(scaled)) if end is not None]
        if not ends:
            return Estimate(value=value, note="no interval: without repeats or rounding, too few points to tell")
        low, high = min(end[0] for end in ends), max(end[1] for end in ends)
        if self.is_nonnegative:
            low, high = max(low, 0.0), max(high, 0.0)
        return Estimate(
            value=value,
            interval=Interval(low=min(low, value), high=max(high, value), method=self.rests_on),
        )

    def residuals(self) -> tuple[Residual, ...]:
        """Of every place, in order."""
        return tuple(
            Residual(x=float(row * self.scale), frac=float(value / law - 1))
            if law > 0
            else Residual(x=float(row * self.scale), frac=math.inf)
            for row, value, law in zip(self.design[:, 1], self.values, self.fitted, strict=True)
        )

    def _by_noise(self, scaled: Array) -> tuple[float, float] | None:
        if self.sd_frac is None:
            return None
        root = np.sqrt(self._weights())
        inverse = np.linalg.pinv(self.design * root[:, None]) * root  # [P, L]
        row = scaled @ inverse  # [L]
        error = self.sd_frac * math.sqrt(float(np.sum(row**2 / self._weights())))
        half = float(distributions.t.ppf((1 + LEVEL) / 2, self.num_free)) * error
        center = float(scaled @ self.free_coefficients)
        if not self.has_rounding or self.rests_on != _REPEATS:
            return center - half, center + half
        down, up = self.values - self.low, self.high - self.values
        return (
            center - half - float(np.sum(np.where(row > 0, row * down, -row * up))),
            center + half + float(np.sum(np.where(row > 0, row * up, -row * down))),
        )

    def _by_rounding(self, scaled: Array) -> tuple[float, float] | None:
        if not self.has_rounding or self.rests_on == _REPEATS:
            return None
        return rounding_range(self.design, self.low, self.high, scaled, is_nonnegative=self.is_nonnegative)

    def _weights(self) -> Array:
        return np.asarray(1 / (self.spread * self.fitted**2), dtype=np.float64)


_REPEATS = "t interval from the scatter of repeats; relative noise, the same share everywhere"
_SCATTER = "t interval from the scatter of the points about the law; relative noise"
_ROUNDING = "rounding alone, exact by linear programming; noise is not known and not in it"
_BOTH = "the wider of rounding (linear programming) and the scatter of the points about the law (t)"
_NOTHING = "nothing"


def weighted_fit(
    places: Sequence[Observed], noise: Noise, num_coefficients: int, *, is_nonnegative: bool
) -> WeightedFit:
    """Fit x^0 .. x^(P - 1) to the places, which are in ascending order and at least P.

    is_nonnegative: no coefficient below zero (NNLS; Lawson and Hanson). Intervals are then those of the fit without
    bounds, cut at zero: they cover as often as those do.
    """
    design, values, spread = _matrices(places, noise, num_coefficients)
    limits = [place.rounding or (place.middle, place.middle) for place in places]
    low, high = (np.array(ends) for ends in zip(*limits, strict=True))
    free, fitted = _solved(design, values, spread, is_nonnegative=False)
    coefficients = free
    if is_nonnegative:
        coefficients, fitted = _solved(design, values, spread, is_nonnegative=True)
    has_rounding = all(place.rounding is not None for place in places)
    is_feasible = has_rounding and (
        rounding_range(design, low, high, design[-1], is_nonnegative=is_nonnegative) is not None
    )
    beyond = np.maximum(np.abs(values - fitted) - np.maximum(high - values, values - low), 0.0)
    size = spread * fitted**2
    source = _source(
        noise,
        num_left=len(places) - num_coefficients,
        scatter=float(np.sum((values - fitted) ** 2 / size)),
        scatter_beyond=float(np.sum(beyond**2 / size)),
        has_rounding=has_rounding,
        is_feasible=is_feasible,
    )
    return WeightedFit(
        scale=places[-1].x,
        design=design,
        values=values,
        fitted=fitted,
        low=low,
        high=high,
        spread=spread,
        coefficients=coefficients,
        free_coefficients=free,
        has_rounding=has_rounding,
        is_nonnegative=is_nonnegative,
        is_lacking=source.lack_chance < _LACKING_CHANCE,
        lack_chance=source.lack_chance,
        sd_frac=source.sd_frac,
        num_free=source.num_free,
        rests_on=source.rests_on,
    )


@dataclass(frozen=True, slots=True)
class _Source:
    """Where the size of the noise comes from."""

    lack_chance: float
    sd_frac: float | None
    num_free: int
    rests_on: str


def _source(
    noise: Noise,
    *,
    num_left: int,
    scatter: float,
    scatter_beyond: float,
    has_rounding: bool,
    is_feasible: bool,
) -> _Source:
    """scatter, scatter_beyond: sums of squared relative residuals, all of them and what rounding does not explain.
    is_feasible: a law passes within the rounding of all points."""
    has_repeats = noise.sd_frac is not None
    if has_repeats:
        lack_chance = 1.0 if is_feasible or num_left < 1 else _lack_chance(scatter_beyond, num_left, noise)
    else:
        lack_chance = 0.0 if has_rounding and not is_feasible else 1.0
    if has_repeats and lack_chance >= _LACKING_CHANCE:
        return _Source(lack_chance, noise.sd_frac, noise.num_free, _REPEATS)
    if num_left < 1:
        return _Source(lack_chance, None, 0, _ROUNDING if is_feasible else _NOTHING)
    sd_frac = max(math.sqrt(scatter / num_left), noise.sd_frac or 0.0)
    return _Source(lack_chance, sd_frac, num_left, _BOTH if is_feasible and not has_repeats else _SCATTER)


def leading_coefficient(
    places: Sequence[Observed], noise: Noise, num_coefficients: int, *, is_nonnegative: bool
) -> float:
    """The coefficient of the highest power alone, as `weighted_fit` finds it."""
    power = num_coefficients - 1
    found, _ = _solved(*_matrices(places, noise, num_coefficients), is_nonnegative=is_nonnegative)
    return float(found[power]) / places[-1].x ** power


def _matrices(places: Sequence[Observed], noise: Noise, num_coefficients: int) -> tuple[Array, Array, Array]:
    """design[L, P] in units of the longest place, values[L], spread[L]."""
    scale = places[-1].x
    return (
        np.array([[(place.x / scale) ** power for power in range(num_coefficients)] for place in places]),
        np.array([place.middle for place in places]),
        np.array([median_variance(place, noise) for place in places]),
    )


def _lack_chance(scatter: float, num_left: int, noise: Noise) -> float:
    """Lack of fit against pure error: an F test."""
    assert noise.sd_frac is not None
    if noise.sd_frac == 0:
        return 0.0 if scatter > 1e-12 else 1.0
    return float(distributions.f.sf(scatter / num_left / noise.sd_frac**2, num_left, noise.num_free))


def _solved(design: Array, values: Array, spread: Array, *, is_nonnegative: bool) -> tuple[Array, Array]:
    """Coefficients[P] and the law's values[L]; weights are found by iteration and stay the last usable ones when the
    law would go below zero."""
    law: Array = values
    coefficients: Array = np.zeros(design.shape[1])
    for _ in range(_NUM_STEPS):
        root = 1 / (np.sqrt(spread) * law)
        rows, targets = design * root[:, None], values * root
        if is_nonnegative:
            coefficients = optimize.nnls(rows, targets)[0]
        else:
            coefficients = np.asarray(np.linalg.lstsq(rows, targets, rcond=None)[0], dtype=np.float64)
        fitted = design @ coefficients
        if np.any(fitted <= 0) or np.allclose(fitted, law, rtol=1e-10):
            break
        law = fitted
    fitted = design @ coefficients
    return coefficients, fitted if np.all(fitted > 0) else np.where(fitted > 0, fitted, law)
