import pytest

from deepdraft.stats import mean_of_samples, weighted_mean


def test_the_two_means_differ_and_each_has_its_own_name():
    tpots, tokens = [0.050, 0.005], [10, 1000]
    assert mean_of_samples(tpots) == pytest.approx(0.0275)
    assert weighted_mean(tpots, tokens) == pytest.approx((0.5 + 5.0) / 1010)


def test_nothing_has_no_mean():
    assert mean_of_samples([]) is None
    assert weighted_mean([], []) is None
    assert weighted_mean([1.0], [0.0]) is None


def test_weights_must_fit():
    with pytest.raises(ValueError, match="1 samples but 2 weights"):
        weighted_mean([1.0], [1, 2])
    with pytest.raises(ValueError, match="negative"):
        weighted_mean([1.0, 2.0], [1, -1])
