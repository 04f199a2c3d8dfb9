import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.report.tick import log_ticks


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [
        (0.9, 60, (1, 2, 5, 10, 20, 50)),
        (0.1, 1000, (0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)),
        (2.1, 4.9, (2.1, 4.9)),
    ],
)
def test_one_two_five_or_fewer(low, high, ticks):
    assert log_ticks(low, high) == pytest.approx(ticks)


@given(st.floats(1e-6, 1e6), st.floats(1.01, 1e6))
def test_ticks_lie_within_and_ascend(low, factor):
    ticks = log_ticks(low, low * factor)
    assert len(ticks) >= 1
    assert list(ticks) == sorted(ticks)
    assert low <= ticks[0] and ticks[-1] <= low * factor
