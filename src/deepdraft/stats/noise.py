"""How far repeats at one place lie from each other, and which of them tell another story: outliers, warm-up, drift.

The model: a value is the truth times (1 + error), the error's size the same share of the truth at every place. So all
repeats of a curve together say how large it is, with sum(repeats - 1) degrees of freedom. Nothing is dropped in
silence: a value that is named an outlier takes no part in the size of the noise, and stays in its place's median.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats as distributions

from deepdraft.stats.observed import Observed

_MAX_OUTLIERS = 3
_OUTLIER_CHANCE = 0.05
"""That any value of a clean curve is called an outlier (Bonferroni over its values)."""
_MIN_OUTLIER_FRAC = 0.01
_TREND_CHANCE = 0.01
_MIN_TREND_FRAC = 0.02
_MIN_PLACES_FOR_TREND = 3
_MEDIAN_FACTORS = (1.0, 1.0, 1.160, 1.092, 1.198, 1.135, 1.214, 1.160, 1.223, 1.176)
_MANY = math.sqrt(math.pi / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlier:
    """A value that the other repeats speak against."""

    x: float
    index: int | None
    """Which repeat; None: of two that differ, which one is off can't be told."""
    frac: float
    """Value / median - 1; of two that differ, the larger / the smaller - 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """The size of the noise over one curve."""

    sd_frac: float | None
    """Standard deviation of one value, as a share of the truth; None without repeats."""
    num_free: int
    """Degrees of freedom behind it."""
    outliers: tuple[Outlier, ...]
    doubts: tuple[str, ...]
    """Outliers, warm-up and drift, one sentence each."""


@dataclass(frozen=True, slots=True)
class _Value:
    place: int
    index: int
    log: float


def median_factor(num_values: int) -> float:
    """The standard error of the median of normal values, over that of their mean (1.16 for three)."""
    return _MEDIAN_FACTORS[num_values - 1] if num_values <= len(_MEDIAN_FACTORS) else _MANY


def median_variance(place: Observed, noise: Noise) -> float:
    """The variance of a place's median over that of one value: factor^2 / n without outliers. An outlier pushes the
    median to the next value on its side (with three values: the larger of two), which counts 1.3 / (n - 2) for one of
    them; of two values it moves the median half its own way."""
    num_values = len(place.values)
    outliers = [outlier for outlier in noise.outliers if outlier.x == place.x]
    if not outliers or noise.sd_frac is None:
        return median_factor(num_values) ** 2 / num_values
    if num_values > 2:
        return 1.3 / max(num_values - 1 - len(outliers), 1)
    return max((math.log1p(outliers[0].frac) / 2 / max(noise.sd_frac, 1e-9)) ** 2, 0.5)


def noise_of(observed: Sequence[Observed]) -> Noise:
    """The noise of one curve. Outliers by externally studentised residuals within places (t test, Bonferroni)."""
    values = [
        _Value(place, index, math.log(value))
        for place, one in enumerate(observed)
        if len(one.values) > 1
        for index, value in enumerate(one.values)
    ]
    outliers: list[Outlier] = []
    while len(outliers) < _MAX_OUTLIERS:
        worst = _worst(values, observed)
        if worst is None:
            break
        outlier, gone = worst
        outliers.append(outlier)
        values = [value for value in values if value not in gone]
    square, num_free = _scatter(values)
    return Noise(
        sd_frac=math.sqrt(square / num_free) if num_free else None,
        num_free=num_free,
        outliers=tuple(outliers),
        doubts=(*map(_outlier_text, outliers), *_trends(observed)),
    )


def _by_place(values: Sequence[_Value]) -> dict[int, list[_Value]]:
    places: dict[int, list[_Value]] = {}
    for value in values:
        places.setdefault(value.place, []).append(value)
    return places


def _scatter(values: Sequence[_Value]) -> tuple[float, int]:
    """Sum of squares about the places' means, in logs, and its degrees of freedom."""
    places = _by_place(values).values()
    square = 0.0
    for place in places:
        mean = math.fsum(value.log for value in place) / len(place)
        square += math.fsum((value.log - mean) ** 2 for value in place)
    return square, len(values) - len(places)


def _worst(values: Sequence[_Value], observed: Sequence[Observed]) -> tuple[Outlier, list[_Value]] | None:
    """The value that lies furthest off, if it is an outlier, and what then takes no part any more."""
    square, num_free = _scatter(values)
    if num_free < 2:
        return None
    found: tuple[float, _Value, list[_Value]] | None = None
    for place in _by_place(values).values():
        if len(place) < 2:
            continue
        mean, free = math.fsum(value.log for value in place) / len(place), 1 - 1 / len(place)
        for value in place:
            residual = value.log - mean
            rest = max(square - residual**2 / free, 1e-30) / (num_free - 1)
            size = abs(residual) / math.sqrt(rest * free)
            if found is None or size > found[0]:
                found = size, value, place
    if found is None or 2 * distributions.t.sf(found[0], num_free - 1) * len(values) >= _OUTLIER_CHANCE:
        return None
    _, value, place = found
    one = observed[value.place]
    far = abs(math.exp(value.log) - one.middle)
    if far < _MIN_OUTLIER_FRAC * one.middle or far <= 2.001 * one.error:  # rounding alone moves it as far
        return None
    if len(place) == 2:
        logs = [each.log for each in place]
        return Outlier(x=one.x, index=None, frac=math.expm1(max(logs) - min(logs))), place
    return Outlier(x=one.x, index=value.index, frac=math.exp(value.log) / one.middle - 1), [value]


def _outlier_text(outlier: Outlier) -> str:
    if outlier.index is None:
        return (
            f"two repeats at {outlier.x:,.0f} differ by {outlier.frac:.0%}, more than the others do: which one is "
            "off can't be told"
        )
    return (
        f"repeat {outlier.index + 1} at {outlier.x:,.0f} is an outlier, {outlier.frac:+.0%} from the median there; "
        "it counts in the median and not in the noise"
    )


def _trends(observed: Sequence[Observed]) -> tuple[str, ...]:
    """A first repeat unlike the later ones, else a drift over the repeats, seen at all places together."""
    curves = [[math.log(value) for value in one.values] for one in observed if len(one.values) > 2]
    if len(curves) < _MIN_PLACES_FOR_TREND:
        return ()
    starts = [curve[0] - math.fsum(curve[1:]) / len(curve[1:]) for curve in curves]
    is_start, start = _is_shifted(starts)
    slopes = [_slope(curve) * (len(curve) - 1) for curve in curves]
    is_drift, drift = _is_shifted(slopes)
    later = [_slope(curve[1:]) * (len(curve) - 2) for curve in curves if len(curve) > 3]
    if is_start and not (later and _is_shifted(later)[0]):
        return (
            f"the first repeat is {abs(start):.0%} {'higher' if start > 0 else 'lower'} than the later ones, on "
            f"average over {len(curves)} lengths: a warm-up that was not long enough",
        )
    if is_drift:
        return (
            f"the values drift by {drift:+.0%} from the first repeat to the last, on average over {len(curves)} "
            "lengths",
        )
    return ()


def _slope(curve: Sequence[float]) -> float:
    """Of the least-squares line through a curve's values, a step."""
    middle = (len(curve) - 1) / 2
    return math.fsum((index - middle) * value for index, value in enumerate(curve)) / math.fsum(
        (index - middle) ** 2 for index in range(len(curve))
    )


def _is_shifted(samples: Sequence[float]) -> tuple[bool, float]:
    """Whether the mean differs from zero (t test), and the mean as a share."""
    if len(samples) < _MIN_PLACES_FOR_TREND:
        return False, 0.0
    mean = math.fsum(samples) / len(samples)
    square = math.fsum((sample - mean) ** 2 for sample in samples) / (len(samples) - 1)
    error = math.sqrt(square / len(samples))
    chance = 2 * distributions.t.sf(abs(mean) / error, len(samples) - 1) if error else 0.0
    share = math.expm1(mean)
    return chance < _TREND_CHANCE and abs(share) > _MIN_TREND_FRAC, share
