import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.stats import min_num_samples, percentile, percentile_bound


@pytest.mark.parametrize(("p", "minimum"), [(0.5, 11), (0.9, 64), (0.95, 130), (0.99, 662), (0.999, 6636)])
def test_the_rule_gives_the_published_minima(p, minimum):
    assert min_num_samples(p) == minimum


@pytest.mark.parametrize("p", [0.0, 1.0, -0.5, 99])
def test_a_percentile_outside_the_range_is_refused(p):
    with pytest.raises(ValueError, match="not a percentile"):
        min_num_samples(p)


def test_twelve_samples_carry_a_median_but_no_p99():
    samples = [float(place) for place in range(12)]
    assert percentile(samples, 0.99) is None
    assert percentile_bound(samples, 0.99) == "≥ max of 12"
    assert percentile(samples, 0.5) == 5.5  # the median, as everywhere else
    assert percentile_bound(samples, 0.5) is None


def test_no_samples_have_no_bound_either():
    assert percentile([], 0.5) is None
    assert percentile_bound([], 0.5) == "no samples"


def test_nearest_rank_is_not_thrown_off_by_floating_point():
    samples = [float(place) for place in range(1, 201)]
    assert percentile(samples, 0.95) == 190.0  # 0.95 * 200 = 190.00000000000003
    assert percentile(samples, 0.9) == 180.0


@given(st.lists(st.floats(0, 1e6), min_size=64, max_size=120))
def test_a_percentile_is_a_sample_that_enough_samples_do_not_exceed(samples):
    p90 = percentile(samples, 0.9)
    assert p90 in samples
    assert sum(sample <= p90 for sample in samples) >= 0.9 * len(samples) - 1e-6
