"""Two means that must not be mixed: one vote a sample, or one vote a token.

For requests of different lengths they differ: a request of 10 tokens at 50 ms and one of 1,000 tokens at 5 ms have
a mean of samples of 27.5 ms a token, and a token-weighted mean of 5.4 ms. Print which one a figure is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean_of_samples(samples: Sequence[float]) -> float | None:
    """The arithmetic mean with one vote a sample (the "per-request mean"); None without samples."""
    return math.fsum(samples) / len(samples) if samples else None


def weighted_mean(samples: Sequence[float], weights: Sequence[float]) -> float | None:
    """The mean with `weights` votes a sample: TPOT weighted by tokens is total decode time over total tokens.

    None when the weights sum to zero. Raises ValueError when the two differ in length or a weight is negative.
    """
    if len(samples) != len(weights):
        raise ValueError(f"{len(samples)} samples but {len(weights)} weights")
    if any(weight < 0 for weight in weights):
        raise ValueError("a weight is negative")
    total = math.fsum(weights)
    if not total:
        return None
    return math.fsum(sample * weight for sample, weight in zip(samples, weights, strict=True)) / total
