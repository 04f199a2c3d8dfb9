"""How many times as large one figure is as another: ratios after / before with intervals, in logs.

Paired: trials that alternated (A B B A), so that what drifts hits both; each pair gives one log ratio, and the
interval is Student's t over the pairs. Unpaired: Welch's t on the logs, which does not assume equal noise. Both
assume that errors are a share of the figure and that repeats are independent. The minimum detectable effect is the
true change that a test at 5 % would find 4 times out of 5 with this noise and this many repeats: what "no difference"
can't exclude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy import stats as distributions

from deepdraft.stats.interval import LEVEL, Interval
from deepdraft.stats.observed import Observed

_POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioEstimate:
    """after / before."""

    value: float
    """The geometric mean over pairs, or the quotient of geometric means."""
    interval: Interval | None
    minimum_detectable_frac: float | None
    """0.05: a change of 5 % would be found 4 times out of 5; None: the noise is not known."""
    num_pairs: int | None
    """None when they are not paired."""
    note: str | None = None


def paired_ratio(before: Sequence[float], after: Sequence[float]) -> RatioEstimate:
    """From pairs of trials, in the same order.

    Raises ValueError without pairs, for unequal numbers, or a value that is not above zero.
    """
    if len(before) != len(after) or not before or min(*before, *after) <= 0:
        raise ValueError("pairs of values above zero are wanted")
    logs = [math.log(second / first) for first, second in zip(before, after, strict=True)]
    mean = math.fsum(logs) / len(logs)
    if len(logs) < 2:
        return RatioEstimate(
            value=math.exp(mean),
            interval=None,
            minimum_detectable_frac=None,
            num_pairs=1,
            note="one pair: the noise is not known",
        )
    error = math.sqrt(math.fsum((log - mean) ** 2 for log in logs) / (len(logs) - 1) / len(logs))
    method = f"t interval over {len(logs)} pairs of log ratios"
    return _estimate(mean, error, len(logs) - 1, method, num_pairs=len(logs))


def unpaired_ratio(before: Observed, after: Observed) -> RatioEstimate:
    """From two sets of repeats: Welch where both have two or more; where one has a single value its noise is taken to
    be the other's; from rounding alone where neither has repeats. Raises ValueError for a value not above zero."""
    if min(*before.values, *after.values, *before.values[:1]) <= 0:
        raise ValueError("values above zero are wanted")
    logs = [[math.log(value) for value in one.values] for one in (before, after)]
    means = [math.fsum(each) / len(each) for each in logs]
    mean = means[1] - means[0]
    counts = [len(each) for each in logs]
    if max(counts) < 2:
        return _single_ratio(before, after)
    variances = [
        math.fsum((log - middle) ** 2 for log in each) / (len(each) - 1) if len(each) > 1 else None
        for each, middle in zip(logs, means, strict=True)
    ]
    first, second = variances
    if first is None or second is None:
        known = second if first is None else first
        assert known is not None
        error = math.sqrt(known * (1 / counts[0] + 1 / counts[1]))
        method = "t interval on logs; the noise of the single value taken to be that of the repeats"
        return _estimate(mean, error, max(counts) - 1, method)
    parts = [first / counts[0], second / counts[1]]
    total = sum(parts)
    num_free: float = counts[0] + counts[1] - 2
    if total > 0:
        num_free = total**2 / sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))
    method = f"Welch t interval on logs, {counts[0]} and {counts[1]} repeats, not interleaved: drift is not in it"
    return _estimate(mean, math.sqrt(total), num_free, method)


def _estimate(
    mean: float, error: float, num_free: float, method: str, *, num_pairs: int | None = None
) -> RatioEstimate:
    quantile = float(distributions.t.ppf((1 + LEVEL) / 2, num_free))
    half = quantile * error
    detectable = math.expm1((quantile + float(distributions.t.ppf(_POWER, num_free))) * error)
    return RatioEstimate(
        value=math.exp(mean),
        interval=Interval(low=math.exp(mean - half), high=math.exp(mean + half), method=method),
        minimum_detectable_frac=detectable,
        num_pairs=num_pairs,
    )


def _single_ratio(before: Observed, after: Observed) -> RatioEstimate:
    value = after.middle / before.middle
    limits = before.rounding, after.rounding
    if limits[0] is None or limits[1] is None or limits[0][0] <= 0:
        note = "single values: the noise is not known"
        return RatioEstimate(value=value, interval=None, minimum_detectable_frac=None, num_pairs=None, note=note)
    return RatioEstimate(
        value=value,
        interval=Interval(
            low=limits[1][0] / limits[0][1],
            high=limits[1][1] / limits[0][0],
            method="rounding alone, exact; noise is not known and not in it",
        ),
        minimum_detectable_frac=None,
        num_pairs=None,
        note="single values: rounding is in the interval, noise is not",
    )
