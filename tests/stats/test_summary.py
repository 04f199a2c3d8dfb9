import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.stats import Summary, median, summary

FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def test_low_and_high_are_the_smallest_and_largest_sample():
    assert summary([3.0, 1.0, 2.0]) == Summary(median=2.0, low=1.0, high=3.0, num_samples=3)


def test_no_samples_have_no_summary():
    assert summary([]) is None
    with pytest.raises(ValueError, match="no samples"):
        median([])


def test_an_even_number_of_samples_has_its_median_between_the_middle_two():
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5


def test_spread_is_relative_to_the_median():
    brief = summary([0.9, 1.0, 1.2])
    assert brief is not None
    assert brief.spread_frac == pytest.approx(0.3)
    assert Summary(median=0.0, low=0.0, high=1.0, num_samples=2).spread_frac is None


@given(st.lists(FLOATS, min_size=1, max_size=30), st.randoms())
def test_order_does_not_matter_and_the_median_lies_between(samples, random):
    brief = summary(samples)
    random.shuffle(samples)
    assert summary(samples) == brief
    assert brief.low <= brief.median <= brief.high
