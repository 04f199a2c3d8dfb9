"""Percentiles, and only those that the number of samples carries.

The rule is MLPerf's early stopping at 99 % confidence (mlcommons/inference_policies, `inference_rules.adoc`): the
p-th percentile may be claimed from n samples when, if a share 1 - p of all requests were slower than the claim, to
see at most one slow request among the n would be a surprise of 1 % or less:

    P[Binomial(n, 1 - p) <= 1]  =  p^n + n (1 - p) p^(n-1)  <=  0.01

That gives the published minima: p50 11, p90 64, p95 130, p99 662, p99.9 6,636. (Asking for no slow request at all,
p^n <= 0.01, would give 7, 44, 90, 459, 4,603: too few, since the claim must survive one straggler.)
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import lru_cache

CONFIDENCE = 0.99


def _miss_probability(num_samples: int, p: float) -> float:
    """P[at most one of the samples lies above the p-th percentile]."""
    return p**num_samples + num_samples * (1 - p) * p ** (num_samples - 1)


@lru_cache(maxsize=64)
def min_num_samples(p: float) -> int:
    """The smallest number of samples that carries the percentile p (0 < p < 1).

    Raises ValueError for a p outside that range.
    """
    if not 0 < p < 1:
        raise ValueError(f"not a percentile between 0 and 1: {p}")
    allowed = 1 - CONFIDENCE
    low, high = 1, 2
    while _miss_probability(high, p) > allowed:
        low, high = high, high * 2
    while low < high:  # the probability falls as samples are added
        middle = (low + high) // 2
        if _miss_probability(middle, p) <= allowed:
            high = middle
        else:
            low = middle + 1
    return low


def percentile(samples: Sequence[float], p: float) -> float | None:
    """The p-th percentile by nearest rank (the smallest sample that at least a share p of them does not exceed); p50
    is the median as everywhere else, so that one point does not show two of them.

    None when there are fewer samples than `min_num_samples(p)`.
    """
    if len(samples) < min_num_samples(p):
        return None
    if p == 0.5:
        return statistics.median(samples)
    rank = math.ceil(p * len(samples) - 1e-9)  # 0.95 * 200 is 190.00000000000003 in floats
    return sorted(samples)[max(rank, 1) - 1]


def percentile_bound(samples: Sequence[float], p: float) -> str | None:
    """What can be said of a percentile that the samples do not carry: `p99 >= max of 12`, or None when they do.

    The wording is a caution, not a figure: the largest sample seen is no upper bound for the percentile.
    """
    if len(samples) >= min_num_samples(p):
        return None
    if not samples:
        return "no samples"
    return f"≥ max of {len(samples)}"
