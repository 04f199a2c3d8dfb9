import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import recorded, request, steady, trace

from deepdraft.metrics import (
    decode_tok_s,
    e2el_from_scheduled_s,
    event_tokens,
    itl_s,
    itls_s,
    num_decode_tokens,
    peak_tok_s,
    send_lag_s,
    server_decode_tok_s,
    tpot_bounds_s,
    tpot_s,
    ttft_from_scheduled_s,
)


def grouped(sizes, tpot=0.005, first_s=0.05, stated=True):
    """A stream whose tokens come every `tpot` seconds, gathered into events of these sizes, each sent when full."""
    events, done = [], 0
    for size in sizes:
        done += size
        events.append((first_s + tpot * done, "t"))
    return trace(events, usage=done, stated=sizes if stated else None)


def test_four_tokens_an_event():  # C20
    one = steady(12, gap_s=0.02, per_event=4, stated=(4,) * 12)
    assert tpot_s(one) == pytest.approx(0.005)
    assert itl_s(one) == pytest.approx(0.005)
    assert peak_tok_s(one) >= decode_tok_s(one) * (1 - 1e-9)
    assert peak_tok_s(one) == pytest.approx(200, rel=1e-3)


def test_sixteen_tokens_in_the_first_event():  # C21
    one = steady(21, gap_s=0.02, usage=96, stated=(16, *[4] * 20))
    assert tpot_s(one) == pytest.approx(0.005)
    assert num_decode_tokens(one) == 80


def test_sixteen_tokens_in_the_first_event_by_a_tokenizer_three_times_finer():  # C21 with C23
    one = steady(21, gap_s=0.02, usage=96, tokenizer=(48, *[12] * 20))
    assert tpot_s(one) == pytest.approx(0.005)


def test_eight_events_a_read_are_divided_into_the_time_after_the_first_read():
    events = [(0.088 + 0.04 * (place // 8), "t") for place in range(96)]
    assert tpot_s(trace(events, usage=96)) == pytest.approx(0.005)


def test_prefill_is_left_out():  # C24
    assert tpot_s(steady(50, ttft_s=100.0)) == pytest.approx(tpot_s(steady(50, ttft_s=0.1)))


def test_bursts_of_a_drafter_agree_with_the_engines_own_rate():  # C25
    for name in ("none", "selfdraft", "synthr", "ngram_mod", "tinydraft"):
        one = recorded(f"llama.cpp-2026-10/spec_{name}.sse")
        assert decode_tok_s(one) == pytest.approx(server_decode_tok_s(one), rel=0.003)


def test_a_gap_inside_a_burst_is_no_token_time():  # C25
    one = recorded("llama.cpp-2026-10/spec_selfdraft.sse")
    assert 0.05 < itl_s(one) < 0.06  # the median gap between events is 0.2 ms
    assert peak_tok_s(one) < 25


def test_the_end_token_without_text_is_not_divided_into_the_time_of_the_others():
    assert tpot_s(steady(20, gap_s=0.02, usage=21, finish="stop")) == pytest.approx(0.02)


@pytest.mark.parametrize(
    "one",
    [
        trace([(0.5, "t")], usage=1),
        trace([(0.5, "t"), (0.5, "t"), (0.5, "t")], usage=3),
        trace([(0.5, "t"), (0.6, "t")]),
        trace([(0.5, "o")], usage=0),
    ],
    ids=["one event", "one read", "not counted", "no token"],
)
def test_what_can_not_be_timed_is_none_and_no_zero(one):
    assert tpot_s(one) is None
    assert decode_tok_s(one) is None
    assert tpot_bounds_s(one) is None
    assert itl_s(one) is None


def test_bounds_hold_the_truth_when_the_split_is_estimated():
    one = trace([(0.1, "t", 10), (0.2, "t", 10), (0.3, "t", 10)], usage=12)
    low, high = tpot_bounds_s(one)
    assert low == pytest.approx(0.2 / 11)  # the first event holds one token at least
    assert high == pytest.approx(0.2 / 2)  # and ten at most: the others hold one each
    assert low <= tpot_s(one) <= high


def test_bounds_meet_when_the_counts_are_exact():
    low, high = tpot_bounds_s(steady(10))
    assert low == high == pytest.approx(0.02)


def test_an_empty_event_passes_its_gap_on():
    one = trace([(0.10, "t"), (0.12, "t"), (0.14, "t"), (0.16, "t")], usage=3, stated=(1, 0, 1, 1))
    assert itls_s(one) == (pytest.approx((0.04, 1)), pytest.approx((0.02, 1)))


def test_latency_counts_from_the_schedule():
    late = request(steady(8, ttft_s=0.5), started_at_s=12.0, scheduled_at_s=10.0)
    assert send_lag_s(late) == pytest.approx(2.0)
    assert ttft_from_scheduled_s(late) == pytest.approx(2.5)
    assert e2el_from_scheduled_s(late) == pytest.approx(2.0 + late.trace.end_s)
    closed = request(steady(8))
    assert (send_lag_s(closed), ttft_from_scheduled_s(closed), e2el_from_scheduled_s(closed)) == (None, None, None)


SIZES = st.lists(st.integers(1, 20), min_size=2, max_size=40)


@given(SIZES, st.floats(0.001, 2.0))
def test_time_a_token_does_not_depend_on_how_tokens_are_gathered(sizes, tpot):
    assert tpot_s(grouped(sizes, tpot)) == pytest.approx(tpot, rel=1e-3, abs=2e-6)


@given(SIZES, st.integers(0, 200))
def test_an_estimated_time_a_token_lies_within_its_bounds(sizes, extra):
    one = grouped(sizes, stated=False)
    one = trace([(0.055 * place, "t", size) for place, size in enumerate(sizes, 1)], usage=len(sizes) + extra)
    bounds = tpot_bounds_s(one)
    assert bounds is not None
    assert bounds[0] * (1 - 1e-9) <= tpot_s(one) <= bounds[1] * (1 + 1e-9)


@given(SIZES)
def test_the_inter_token_latencies_add_up_to_the_decode_time(sizes):
    one = grouped(sizes)
    total_s = sum(latency * num_tokens for latency, num_tokens in itls_s(one))
    assert total_s == pytest.approx(tpot_s(one) * num_decode_tokens(one))
    assert sum(event_tokens(one).counts) == sum(sizes)
    assert peak_tok_s(one) >= decode_tok_s(one) * (1 - 1e-9)
