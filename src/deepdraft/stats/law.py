"""The two laws of long contexts: decode time d + e n, prefill time a + b n + c n^2, n in tokens.

Assumes relative noise (see weighted_fit). A law is never more than what the points carry: with too few of them the
answer is CannotTell with the point that would tell; what speaks against the law is in its `doubts`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from deepdraft.stats.interval import CannotTell, Estimate
from deepdraft.stats.noise import Noise, noise_of
from deepdraft.stats.observed import Observed, by_place
from deepdraft.stats.share import Shares, shares_of
from deepdraft.stats.theil_sen import theil_sen
from deepdraft.stats.weighted_fit import Residual, WeightedFit, leading_coefficient, weighted_fit

__all__ = ["LinearLaw", "QuadraticLaw", "Residual", "Shares", "linear_law", "quadratic_law"]

_MAX_INFLUENCE = 0.2
"""Change of the leading coefficient without one point, from which on that point is named."""
_NEGLIGIBLE_SHARE = 0.1
_MIN_LINEAR = 3
_MIN_QUADRATIC = 4
_MIN_SPAN = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearLaw:
    """value = intercept + slope x."""

    intercept: Estimate
    slope: Estimate
    robust_slope: Estimate
    """Theil-Sen, beside the least-squares one."""
    residuals: tuple[Residual, ...]
    noise: Noise
    is_lacking: bool
    """The points lie further from the line than repeats or rounding explain: the law is another one."""
    is_impossible: bool
    """The intercept is below zero, which no time can be."""
    doubts: tuple[str, ...]
    """What speaks against the law or the values, one sentence each."""
    fit: WeightedFit

    @property
    def residual_frac(self) -> float:
        """The largest distance of a point from the law, as a share of the law."""
        return max(abs(residual.frac) for residual in self.residuals)

    def at(self, x: float) -> Estimate:
        """The law's value at x."""
        return self.fit.at(x)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuadraticLaw:
    """value = a + b x + c x^2, none of the three below zero."""

    a: Estimate
    b: Estimate
    c: Estimate
    residuals: tuple[Residual, ...]
    noise: Noise
    is_lacking: bool
    is_quadratic: Literal["yes", "no", "cannot tell"]
    """Whether the quadratic term is there, and counts at the longest place."""
    rests_on: str
    """What that verdict rests on, in a sentence."""
    doubts: tuple[str, ...]
    fit: WeightedFit

    @property
    def residual_frac(self) -> float:
        """The largest distance of a point from the law, as a share of the law."""
        return max(abs(residual.frac) for residual in self.residuals)

    def at(self, x: float) -> Estimate:
        """The law's value at x."""
        return self.fit.at(x)

    def shares(self, x: float) -> Shares:
        """The share of each term at x."""
        return shares_of(self.fit, x)


def linear_law(observed: Sequence[Observed]) -> LinearLaw | CannotTell:
    """Fit a line. CannotTell below three distinct places.

    Raises ValueError for values or places that are not above zero.
    """
    places = by_place(tuple(observed))
    if len(places) < _MIN_LINEAR:
        return _too_few(places, _MIN_LINEAR, "a line goes through any two points, whatever the law")
    noise = noise_of(places)
    fit = weighted_fit(places, noise, 2, is_nonnegative=False)
    intercept = fit.coefficient(0)
    is_impossible = intercept.value < 0
    doubts = [*noise.doubts, *_lack_text(fit, "straight line"), *_influence(places, noise, fit)]
    if is_impossible:
        doubts.insert(0, _intercept_text(intercept))
    return LinearLaw(
        intercept=intercept,
        slope=fit.coefficient(1),
        robust_slope=theil_sen([(place.x, place.middle) for place in places]),
        residuals=fit.residuals(),
        noise=noise,
        is_lacking=fit.is_lacking,
        is_impossible=is_impossible,
        doubts=tuple(doubts),
        fit=fit,
    )


def quadratic_law(observed: Sequence[Observed]) -> QuadraticLaw | CannotTell:
    """Fit a quadratic. CannotTell below four distinct places, or when they span less than a factor of 8: then a line
    and a parabola differ too little between them.

    Raises ValueError for values or places that are not above zero.
    """
    places = by_place(tuple(observed))
    if len(places) < _MIN_QUADRATIC:
        return _too_few(
            places, _MIN_QUADRATIC, "a parabola goes through any three points: linear or quadratic can't be told"
        )
    if places[-1].x < _MIN_SPAN * places[0].x:
        return CannotTell(
            reason=f"the lengths span less than a factor of {_MIN_SPAN:.0f}: linear or quadratic can't be told",
            would_tell=f"a point at {2 * _MIN_SPAN * places[0].x:,.0f} or beyond",
            propose=(2 * _MIN_SPAN * places[0].x,),
        )
    noise = noise_of(places)
    fit = weighted_fit(places, noise, 3, is_nonnegative=True)
    verdict, rests_on = _curvature(places, fit)
    return QuadraticLaw(
        a=fit.coefficient(0),
        b=fit.coefficient(1),
        c=fit.coefficient(2),
        residuals=fit.residuals(),
        noise=noise,
        is_lacking=fit.is_lacking,
        is_quadratic=verdict,
        rests_on=rests_on,
        doubts=(*noise.doubts, *_lack_text(fit, "curve a + b n + c n^2"), *_influence(places, noise, fit)),
        fit=fit,
    )


def _too_few(places: Sequence[Observed], least: int, why: str) -> CannotTell:
    if not places:
        return CannotTell(reason="no points", would_tell=f"{least} lengths that span a factor of 16 or more")
    longest = places[-1].x
    propose = tuple(longest * 4.0**step for step in range(1, least - len(places) + 1))
    lengths = " and ".join(f"{length:,.0f}" for length in propose)
    return CannotTell(
        reason=f"{len(places)} point{'s' if len(places) > 1 else ''}: {why}",
        would_tell=f"another point, well beyond the longest: at {lengths}",
        propose=propose,
    )


def _curvature(places: Sequence[Observed], fit: WeightedFit) -> tuple[Literal["yes", "no", "cannot tell"], str]:
    longest = places[-1].x
    interval, law = fit.coefficient(2).interval, fit.at(longest).value
    if interval is None:
        return "cannot tell", "without repeats or rounding, four points can't tell the quadratic term from chance"
    share = shares_of(fit, longest).quadratic
    low, high = (end * longest**2 / law for end in (interval.low, interval.high))
    if low > 0 and share.value >= _NEGLIGIBLE_SHARE:
        within = share.interval
        between = "" if within is None else f" [{within.low:.0%} - {within.high:.0%}]"
        return "yes", (
            f"the quadratic term's interval excludes zero; its share at {longest:,.0f} is {share.value:.0%}{between}"
        )
    if high < _NEGLIGIBLE_SHARE:
        return "no", f"the quadratic term is at most {max(high, 0):.0%} of the whole at {longest:,.0f}"
    between = f"{max(low, 0):.0%} to {min(high, 1):.0%} of the whole at {longest:,.0f}"
    return "cannot tell", f"the quadratic term may be {between}; a longer point or more repeats would tell"


def _intercept_text(intercept: Estimate) -> str:
    if intercept.interval is not None and intercept.interval.high < 0:
        return "impossible: the line meets length 0 below zero, interval included, so it is no law of these points"
    return "the line meets length 0 below zero, which no time can; zero lies within its interval"


def _lack_text(fit: WeightedFit, name: str) -> tuple[str, ...]:
    if not fit.is_lacking:
        return ()
    worst = max(fit.residuals(), key=lambda residual: abs(residual.frac))
    by = "their repeats explain" if not fit.has_rounding else "rounding explains"
    return (
        f"no {name}: the points lie further from it than {by}, furthest at {worst.x:,.0f} ({worst.frac:+.0%}); the "
        "intervals are those of the points about it, not of the repeats",
    )


def _influence(places: Sequence[Observed], noise: Noise, fit: WeightedFit) -> tuple[str, ...]:
    """The points without which the leading coefficient would be another one."""
    num_coefficients = fit.design.shape[1]
    if len(places) < num_coefficients + 2:
        return ()
    lead = num_coefficients - 1
    whole = float(fit.coefficients[lead]) / fit.scale**lead
    doubts = []
    for index, place in enumerate(places):
        rest = [*places[:index], *places[index + 1 :]]
        other = leading_coefficient(rest, noise, num_coefficients, is_nonnegative=fit.is_nonnegative)
        if whole and not math.isclose(other, whole, rel_tol=_MAX_INFLUENCE):
            name = "slope" if lead == 1 else "quadratic term"
            doubts.append(f"the {name} rests on the point at {place.x:,.0f}: without it {other / whole - 1:+.0%}")
    return tuple(doubts)
