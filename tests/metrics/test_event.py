import pytest
from trace_builder import steady, trace

from deepdraft.metrics import (
    answer_ttft_s,
    e2el_s,
    event_times_s,
    first_byte_s,
    first_event_s,
    last_token_s,
    output_tokens,
    token_times_s,
    tpot_s,
    ttft_s,
)


def test_a_role_chunk_is_no_token():  # C10
    one = trace([(0.002, "o"), (0.5, "t"), (0.505, "t")], usage=2)
    assert ttft_s(one) == pytest.approx(0.5)
    assert first_event_s(one) == pytest.approx(0.002)


def test_reasoning_is_the_first_token_and_the_answer_has_its_own_stamp():  # C11
    events = [(0.051 + 0.005 * place, "r") for place in range(48)] + [
        (0.291 + 0.005 * place, "t") for place in range(48)
    ]
    one = trace([(0.05, "o"), *events], usage=96)
    assert ttft_s(one) == pytest.approx(0.051)
    assert answer_ttft_s(one) == pytest.approx(0.291)
    assert output_tokens(one) == 96


def test_reasoning_alone_gives_figures_and_no_answer():  # C12
    one = trace([(0.05 + 0.005 * place, "r") for place in range(20)], usage=20)
    assert ttft_s(one) == pytest.approx(0.05)
    assert tpot_s(one) == pytest.approx(0.005)
    assert answer_ttft_s(one) is None


def test_four_stamps_are_told_apart():  # C13: headers, content null, content "", reasoning, text
    one = trace([(0.010, "k"), (0.020, "o"), (0.030, "o"), (0.040, "r"), (0.050, "t")], usage=2)
    stamps = [first_byte_s(one), first_event_s(one), ttft_s(one), answer_ttft_s(one)]
    assert stamps == pytest.approx([0.010, 0.020, 0.040, 0.050])


def test_a_tool_call_is_a_token():
    one = trace([(0.01, "o"), (0.051, "c"), (0.056, "c")], usage=2)
    assert ttft_s(one) == pytest.approx(0.051)


def test_what_follows_the_last_token_is_not_decoding():  # C14
    events = [(0.05 + 0.005 * place, "t") for place in range(96)]
    one = trace([*events, (events[-1][0] + 0.3, "u"), (events[-1][0] + 0.3001, "d")], usage=96)
    assert tpot_s(one) == pytest.approx(0.005)
    assert last_token_s(one) == pytest.approx(0.05 + 0.005 * 95)
    assert e2el_s(one) == pytest.approx(0.05 + 0.005 * 95 + 0.3001)


def test_without_a_token_there_is_no_figure():
    one = trace([(0.1, "o"), (0.2, "f"), (0.3, "d")])
    assert ttft_s(one) is None
    assert answer_ttft_s(one) is None
    assert last_token_s(one) is None
    assert token_times_s(one) == ()
    assert first_event_s(trace([])) is None


def test_times_add_up_from_gaps():
    one = steady(3, ttft_s=0.5, gap_s=0.02)
    assert event_times_s(one) == pytest.approx((0.25, 0.5, 0.52, 0.54, 0.5405, 0.5406, 0.5407))
