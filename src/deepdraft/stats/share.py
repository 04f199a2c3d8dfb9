"""The share of each term of a quadratic law at one length, by parametric bootstrap.

New values are drawn about the fitted law with its noise (and within their rounding), the law is fitted again, and the
2.5 % and 97.5 % points of the shares are taken: 400 draws, always the same ones. Shapes: L places.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import optimize

from deepdraft.stats.interval import Estimate, Interval
from deepdraft.stats.weighted_fit import WeightedFit

_NUM_DRAWS = 400
_SEED = 20_260


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Each between 0 and 1; they sum to 1."""

    constant: Estimate
    linear: Estimate
    quadratic: Estimate


def shares_of(fit: WeightedFit, x: float) -> Shares:
    """The shares at x of a fit with three non-negative coefficients."""
    powers = np.array([(x / fit.scale) ** power for power in range(3)])
    terms = fit.coefficients * powers
    values = terms / terms.sum()
    if fit.sd_frac is None and not fit.has_rounding:
        return _named([Estimate(value=float(value)) for value in values])
    generator = np.random.default_rng(_SEED)
    root = 1 / (np.sqrt(fit.spread) * fit.fitted)
    drawn = []
    for _ in range(_NUM_DRAWS):
        sample = fit.fitted.copy()
        if fit.sd_frac is not None:
            size = fit.sd_frac * np.sqrt(fit.num_free / generator.chisquare(fit.num_free))
            sample *= np.maximum(1 + size * np.sqrt(fit.spread) * generator.standard_normal(len(sample)), 0.01)
        sample += generator.uniform(fit.low - fit.values, fit.high - fit.values)
        found = optimize.nnls(fit.design * root[:, None], sample * root)[0] * powers
        if found.sum() > 0:
            drawn.append(found / found.sum())
    low, high = np.quantile(np.array(drawn), (0.025, 0.975), axis=0)
    method = f"parametric bootstrap, {_NUM_DRAWS} draws, seed fixed; {fit.rests_on}"
    return _named(
        [
            Estimate(
                value=float(value),
                interval=Interval(low=min(float(a), float(value)), high=max(float(b), float(value)), method=method),
            )
            for value, a, b in zip(values, low, high, strict=True)
        ]
    )


def _named(terms: list[Estimate]) -> Shares:
    return Shares(constant=terms[0], linear=terms[1], quadratic=terms[2])
