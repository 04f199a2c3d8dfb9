"""Spearman's rank correlation: whether a figure goes up or down with time, whatever the shape of the trend."""

from __future__ import annotations

from collections.abc import Sequence


def _ranks(samples: Sequence[float]) -> list[float]:
    """Ranks from 1; equal samples share the mean of their ranks."""
    order = sorted(range(len(samples)), key=samples.__getitem__)
    ranks = [0.0] * len(samples)
    start = 0
    while start < len(order):
        end = start
        while end + 1 < len(order) and samples[order[end + 1]] == samples[order[start]]:
            end += 1
        for place in range(start, end + 1):
            ranks[order[place]] = (start + end) / 2 + 1
        start = end + 1
    return ranks


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Spearman's rho in [-1, 1]; None for fewer than three pairs, or when one side is constant.

    Raises ValueError when the two differ in length.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} and {len(second)} samples can't be paired")
    if len(first) < 3:
        return None
    first_ranks, second_ranks = _ranks(first), _ranks(second)
    mean = (len(first) + 1) / 2
    covariance = sum((a - mean) * (b - mean) for a, b in zip(first_ranks, second_ranks, strict=True))
    first_variance = sum((a - mean) ** 2 for a in first_ranks)
    second_variance = sum((b - mean) ** 2 for b in second_ranks)
    if not first_variance or not second_variance:
        return None
    return float(max(-1.0, min(1.0, covariance / (first_variance * second_variance) ** 0.5)))
