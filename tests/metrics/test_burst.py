import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.metrics.burst import bursts_of


def times(*gaps_ms: float, first_s: float = 1.0) -> tuple[float, ...]:
    result = [first_s]
    for gap in gaps_ms:
        result.append(result[-1] + gap / 1e3)
    return tuple(result)


def test_events_close_together_are_one_burst():
    bursts = bursts_of(times(20, 0.1, 0.1, 20, 0.1, 20, 20, 0.2))
    assert bursts.num_events == (1, 3, 2, 1, 2)
    assert bursts.typical_gap_s == pytest.approx(0.020)
    assert bursts.why_not is None


def test_a_stall_is_not_the_rhythm():
    bursts = bursts_of(times(*[20] * 10, 10_000, *[20] * 10))
    assert bursts.num_events == (1,) * 22
    assert bursts.typical_gap_s == pytest.approx(0.020)


def test_long_verify_steps_do_not_swallow_the_plain_ones():
    """Five steps of 600 ms that commit 8 between forty plain ones of 26 ms: most of the time is in the long ones."""
    gaps = [*[26] * 8, 600, *[0.1] * 7] * 5
    bursts = bursts_of(times(*gaps))
    assert len(bursts.num_events) == 1 + 45
    assert set(bursts.num_events) == {1, 8}


def test_two_long_gaps_among_short_ones_can_not_be_told_from_stalls():
    bursts = bursts_of(times(300, 0.1, 0.1, 0.1, 0.1, 0.1, 300, 0.1, 0.1, 0.1, 0.1, 0.1))
    assert bursts.why_not is not None and "too few" in bursts.why_not
    assert bursts.num_events == (1,) * 13


def test_events_of_one_read_stay_together_even_without_a_rhythm():
    bursts = bursts_of(times(0, 0, 5, 0))
    assert bursts.num_events == (3, 2)
    assert bursts.why_not is not None


def test_a_very_fast_rhythm_is_taken_when_nothing_slower_is_there():
    assert bursts_of(times(*[0.3] * 20)).num_events == (1,) * 21


@pytest.mark.parametrize("num", [0, 1])
def test_nothing_and_one_event(num):
    bursts = bursts_of(times()[:num])
    assert bursts.num_events == (1,) * num
    assert bursts.why_not is not None


@given(st.lists(st.floats(0, 1e4), max_size=60))
def test_no_event_is_lost_and_ends_rise(gaps):
    bursts = bursts_of(times(*gaps))
    assert sum(bursts.num_events) == len(gaps) + 1
    assert list(bursts.ends_s) == sorted(bursts.ends_s)
    assert len(bursts.ends_s) == len(bursts.num_events)


@given(st.lists(st.integers(1, 8), min_size=5, max_size=40), st.floats(0.002, 2.0), st.randoms())
def test_steps_come_back_whatever_their_sizes(sizes, step_s, random):
    step_at_s, stamps = 0.5, []
    for size in sizes:
        at_s = step_at_s
        for _ in range(size):
            stamps.append(at_s)
            at_s += step_s * 0.004 * random.random()
        step_at_s += step_s * (0.9 + 0.2 * random.random())
    assert bursts_of(tuple(stamps)).num_events == tuple(sizes)
