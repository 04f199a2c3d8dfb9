"""What rounding alone allows: the exact range of a law's coefficients when each point is known to within limits.

A law that is linear in its coefficients (a + b x + c x^2 is) makes each point two linear constraints, so the smallest
and the largest value of any combination of coefficients are two linear programs. Shapes: L points, P coefficients.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Array = NDArray[np.float64]


def rounding_range(
    design: Array, low: Array, high: Array, combination: Array, *, is_nonnegative: bool
) -> tuple[float, float] | None:
    """The range of combination[P] @ coefficients over all laws with low[L] <= design[L, P] @ coefficients <= high[L].

    None when no law passes within the limits of every point. An open end is -inf or inf.
    """
    scale = np.maximum(np.abs(low), np.abs(high))
    rows = design / scale[:, None]
    constraints = np.vstack([rows, -rows])
    limits = np.concatenate([high / scale, -low / scale])
    bounds = [(0.0 if is_nonnegative else None, None)] * design.shape[1]
    size = float(np.abs(combination).max()) or 1.0
    ends = []
    for sign in (1.0, -1.0):
        solved = linprog(sign * combination / size, A_ub=constraints, b_ub=limits, bounds=bounds, method="highs")
        if solved.status == 3:  # without bound
            ends.append(-np.inf)
        elif solved.status != 0:
            return None
        else:
            ends.append(float(solved.fun) * size)
    return float(ends[0]), float(-ends[1])
