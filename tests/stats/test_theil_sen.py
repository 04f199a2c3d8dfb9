import random

import pytest
from scipy import stats as distributions

from deepdraft.stats.theil_sen import theil_sen


def test_a_line_gives_its_slope_exactly() -> None:
    found = theil_sen([(x, 3 + 2 * x) for x in range(6)])
    assert found.value == pytest.approx(2)
    assert found.interval is not None and found.interval.low == pytest.approx(2)


def test_one_wild_point_in_five_changes_nothing_much() -> None:
    points = [(float(x), 2.0 * x) for x in range(1, 8)]
    points[-1] = (7.0, 1_000.0)
    assert theil_sen(points).value == pytest.approx(2)


def test_the_slope_is_scipys() -> None:
    chance = random.Random(0)
    points = [(float(x), x + chance.gauss(0, 1)) for x in range(12)]
    slope = distributions.theilslopes([y for _, y in points], [x for x, _ in points])[0]
    assert theil_sen(points).value == pytest.approx(float(slope))


@pytest.mark.parametrize(("num_points", "has_interval"), [(2, False), (4, False), (5, True), (6, True)])
def test_four_points_exclude_no_slope(num_points: int, has_interval: bool) -> None:
    found = theil_sen([(x, x * 1.0) for x in range(num_points)])
    assert (found.interval is not None) is has_interval
    assert (found.note is None) is has_interval


def test_the_interval_covers() -> None:
    num_covered = 0
    for seed in range(200):
        chance = random.Random(seed)
        found = theil_sen([(float(x), 5 + 0.5 * x + chance.expovariate(1)) for x in range(7)])
        assert found.interval is not None
        num_covered += found.interval.has(0.5)
    assert num_covered >= 184  # 190 expected at least


@pytest.mark.parametrize("num_points", [0, 1, 101])
def test_other_numbers_of_points_are_refused(num_points: int) -> None:
    with pytest.raises(ValueError, match="points"):
        theil_sen([(float(x), 1.0) for x in range(num_points)])
