"""Where a logarithmic axis has its ticks: 1, 2 and 5 of each decade, or fewer where there are many decades."""

from __future__ import annotations

import math

_STEPS = ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,))
_MOST = 10


def log_ticks(low: float, high: float) -> tuple[float, ...]:
    """Ticks from `low` to `high`, both above zero, at most ten where that is possible; the ends where none lies
    between them."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for steps in _STEPS:
        ticks = tuple(
            value for power in powers for step in steps if low <= (value := float(f"{step}e{power}")) <= high
        )
        if len(ticks) <= _MOST:
            break
    return ticks or (low, high)
