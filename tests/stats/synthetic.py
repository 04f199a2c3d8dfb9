"""Synthetic curves of known laws: relative noise, rounding, one outlier. Seeded, so that every test is repeatable."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from deepdraft.stats.observed import Observed, reciprocal

LENGTHS = (1_000, 4_000, 16_000, 32_000, 64_000, 128_000)
DEPLOYMENT_LENGTHS = (1_400, 11_000, 32_000, 64_000, 128_000, 185_000)
DEPLOYMENT_DECODE_TOK_S = (118.6, 19.9, 6.3, 2.8, 1.4, 0.7)
"""A published table, printed to one decimal."""


def curve(
    law: Callable[[float], float],
    *,
    seed: int,
    lengths: Sequence[float] = LENGTHS,
    num_repeats: int = 3,
    noise_frac: float = 0.02,
    outlier_at: float | None = None,
    half_width: float | None = None,
) -> tuple[Observed, ...]:
    """Repeats of the law with relative noise; one repeat at `outlier_at` is half as large again."""
    chance = random.Random(seed)
    observed = []
    for length in lengths:
        values = [law(length) * (1 + noise_frac * chance.gauss(0, 1)) for _ in range(num_repeats)]
        if length == outlier_at:
            values[chance.randrange(num_repeats)] *= 1.5
        if half_width is not None:
            step = 2 * half_width
            values = [max(round(value / step) * step, step) for value in values]
        observed.append(Observed(x=length, values=tuple(values), half_width=half_width))
    return tuple(observed)


def deployment_tpot() -> tuple[Observed, ...]:
    """Seconds a token of the published table, as the inverse of what it prints."""
    return tuple(
        reciprocal(Observed(x=length, values=(rate,), half_width=0.05))
        for length, rate in zip(DEPLOYMENT_LENGTHS, DEPLOYMENT_DECODE_TOK_S, strict=True)
    )
