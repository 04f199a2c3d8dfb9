import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.stats.observed import Observed
from deepdraft.stats.ratio import paired_ratio, unpaired_ratio

TRUTH = 1.1


def repeats(seed: int, *, num_repeats: int, drift_frac: float = 0.0) -> tuple[list[float], list[float]]:
    chance = random.Random(seed)
    before, after = [], []
    for index in range(num_repeats):
        drift = 1 + drift_frac * index
        before.append(0.05 * drift * (1 + 0.02 * chance.gauss(0, 1)))
        after.append(0.05 * TRUTH * drift * (1 + 0.02 * chance.gauss(0, 1)))
    return before, after


def observed(values: list[float]) -> Observed:
    return Observed(x=1_000, values=tuple(values))


@pytest.mark.parametrize("num_repeats", [2, 3, 6])
def test_paired_intervals_cover_the_truth_whatever_drifts(num_repeats: int) -> None:
    found = [paired_ratio(*repeats(seed, num_repeats=num_repeats, drift_frac=0.1)) for seed in range(200)]
    assert sum(one.interval is not None and one.interval.has(TRUTH) for one in found) >= 180


@pytest.mark.parametrize("num_repeats", [2, 3, 6])
def test_unpaired_intervals_cover_the_truth(num_repeats: int) -> None:
    pairs = [repeats(seed, num_repeats=num_repeats) for seed in range(200)]
    found = [unpaired_ratio(observed(before), observed(after)) for before, after in pairs]
    assert sum(one.interval is not None and one.interval.has(TRUTH) for one in found) >= 180


def test_the_stated_effect_is_found_four_times_out_of_five() -> None:
    detectable = [
        one.minimum_detectable_frac or math.nan
        for one in (paired_ratio(*repeats(seed, num_repeats=8)) for seed in range(200))
    ]
    effect = sorted(detectable)[100]
    num_found = 0
    for seed in range(300):
        before, _ = repeats(seed, num_repeats=8)
        _, after = repeats(seed + 1_000, num_repeats=8)
        after = [value / TRUTH * (1 + effect) for value in after]
        interval = paired_ratio(before, after).interval
        assert interval is not None
        num_found += interval.low > 1
    assert 0.7 < num_found / 300 < 0.9


@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3)), min_size=2, max_size=8))
def test_turned_round_the_ratio_is_the_inverse(pairs: list[tuple[float, float]]) -> None:
    before, after = [a for a, _ in pairs], [b for _, b in pairs]
    for there, back in (
        (paired_ratio(before, after), paired_ratio(after, before)),
        (unpaired_ratio(observed(before), observed(after)), unpaired_ratio(observed(after), observed(before))),
    ):
        assert there.value * back.value == pytest.approx(1)
        assert there.interval is not None and back.interval is not None
        assert there.interval.low <= there.value * (1 + 1e-9)
        if there.interval.low > 0 and math.isfinite(back.interval.high):
            assert there.interval.low * back.interval.high == pytest.approx(1)


def test_one_pair_has_no_interval() -> None:
    found = paired_ratio([1.0], [2.0])
    assert (found.value, found.interval, found.num_pairs) == (2.0, None, 1)
    assert found.note is not None


def test_single_rounded_values_have_the_rounding() -> None:
    found = unpaired_ratio(
        Observed(x=1, values=(71.0,), half_width=0.5), Observed(x=1, values=(16.0,), half_width=0.05)
    )
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == pytest.approx((15.95 / 71.5, 16.05 / 70.5))
    assert "noise is not" in found.interval.method


def test_single_values_have_no_interval() -> None:
    found = unpaired_ratio(observed([70.9]), observed([70.7]))
    assert found.interval is None and found.note is not None


def test_a_single_value_borrows_the_noise_of_the_repeats() -> None:
    found = unpaired_ratio(observed([1.0]), observed([2.0, 2.1, 1.9]))
    assert found.interval is not None and found.interval.has(2.0)
    assert "taken to be" in found.interval.method


@pytest.mark.parametrize(("before", "after"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_what_is_no_pair_is_refused(before: list[float], after: list[float]) -> None:
    with pytest.raises(ValueError, match="pairs"):
        paired_ratio(before, after)
