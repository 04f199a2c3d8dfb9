import random

import numpy as np
import pytest

from deepdraft.stats.rounding import rounding_range


def line(lengths: list[float]) -> np.ndarray:
    return np.array([[1.0, length] for length in lengths])


def test_two_points_give_the_slopes_between_their_corners() -> None:
    low, high = np.array([1.0, 3.0]), np.array([1.2, 3.4])
    found = rounding_range(line([0.0, 2.0]), low, high, np.array([0.0, 1.0]), is_nonnegative=False)
    assert found == pytest.approx(((3.0 - 1.2) / 2, (3.4 - 1.0) / 2))


def test_the_range_holds_every_law_that_passes_and_ends_at_one() -> None:
    chance = random.Random(0)
    lengths = [1.0, 3.0, 4.0, 8.0]
    low = np.array([2.9, 6.9, 8.9, 16.9])
    high = low + 0.3
    found = rounding_range(line(lengths), low, high, np.array([0.0, 1.0]), is_nonnegative=False)
    assert found is not None
    slopes = []
    for _ in range(20_000):
        intercept, slope = chance.uniform(0, 2), chance.uniform(1.5, 2.5)
        values = intercept + slope * np.array(lengths)
        if np.all(values >= low) and np.all(values <= high):
            slopes.append(slope)
    assert slopes
    assert found[0] <= min(slopes) and max(slopes) <= found[1]
    assert found[1] - found[0] == pytest.approx(max(slopes) - min(slopes), rel=0.25)


def test_limits_that_no_line_passes_have_no_range() -> None:
    values = np.array([1.0, 2.0, 1.0])
    found = rounding_range(
        line([1.0, 2.0, 3.0]), values - 0.1, values + 0.1, np.array([0.0, 1.0]), is_nonnegative=False
    )
    assert found is None


def test_a_direction_that_nothing_holds_is_open() -> None:
    found = rounding_range(line([1.0]), np.array([1.0]), np.array([2.0]), np.array([0.0, 1.0]), is_nonnegative=False)
    assert found == (-np.inf, np.inf)


def test_bounds_at_zero_hold() -> None:
    found = rounding_range(line([1.0]), np.array([1.0]), np.array([2.0]), np.array([0.0, 1.0]), is_nonnegative=True)
    assert found == pytest.approx((0.0, 2.0))
