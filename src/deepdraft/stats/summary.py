"""Median, smallest and largest of a few repeats. No interval is claimed: three repeats carry none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What a handful of samples say. `low` and `high` are the smallest and the largest sample: the spread that was
    seen over the repeats, not a confidence interval."""

    median: float
    low: float
    high: float
    num_samples: int

    @property
    def spread_frac(self) -> float | None:
        """(high - low) / median; None when the median is 0."""
        return (self.high - self.low) / self.median if self.median else None


def median(samples: Sequence[float]) -> float:
    """The middle sample; of an even number of samples the mean of the two in the middle.

    Raises ValueError when there are no samples.
    """
    if not samples:
        raise ValueError("no samples")
    ordered = sorted(samples)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    low, high = ordered[middle - 1], ordered[middle]
    return min(max(low + (high - low) / 2, low), high)  # a + (b - a)/2 can't overflow; it may round past an end


def summary(samples: Sequence[float]) -> Summary | None:
    """Median, smallest and largest of the samples; None when there are none."""
    if not samples:
        return None
    return Summary(median=median(samples), low=min(samples), high=max(samples), num_samples=len(samples))
