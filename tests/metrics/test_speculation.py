import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import accepted, recorded, steady, trace

from deepdraft.metrics import (
    acceptance_len,
    acceptance_rate_by_depth,
    decode_tok_s,
    request_tokens_per_step,
    step_s,
    tokens_per_step,
    tpot_s,
)


def test_acceptance_counts_the_bonus_token():
    assert acceptance_len(accepted(num_steps=10, num_accepted_tokens=30)).value == pytest.approx(4.0)
    assert acceptance_len(accepted(num_steps=10, num_accepted_tokens=0)).value == 1.0


def test_llamacpp_counts_no_steps():
    length = acceptance_len(accepted(num_accepted_tokens=52, num_draft_tokens=52), 64)
    assert length.value == pytest.approx(63 / 11)
    assert length.source == "timings.draft_n_accepted; steps = output tokens - 1 - accepted"
    assert acceptance_len(accepted(num_accepted_tokens=52)) is None  # nothing to count steps from


def test_a_histogram_and_a_list_say_the_same_as_totals():
    by_step = (0, 3, 1, 3, 0)
    histogram = (2, 1, 0, 2)
    for one in (
        accepted(accepted_len_by_step=by_step),
        accepted(accepted_len_histogram=histogram),
        accepted(num_steps=5, accepted_at_depth=(3, 2, 2)),
    ):
        assert acceptance_len(one).value == pytest.approx(1 + 7 / 5)
        assert acceptance_rate_by_depth(one) == pytest.approx((3 / 5, 2 / 5, 2 / 5))


def test_rates_by_depth_need_steps():
    assert acceptance_rate_by_depth(accepted(num_accepted_tokens=5)) is None
    assert acceptance_rate_by_depth(accepted(accepted_at_depth=(3, 2))) is None
    assert acceptance_rate_by_depth(accepted(accepted_len_by_step=())) is None


def test_the_engines_own_mean_is_the_last_resort_and_says_so():
    length = acceptance_len(accepted(stated_acceptance_len=2.5, source="sglang:spec_accept_length"))
    assert length.value == 2.5
    assert "the engine's own mean" in length.source
    assert acceptance_len(accepted(stated_acceptance_len=0.0)) is None  # below the floor of 1: an idle gauge


def test_a_lifetime_average_is_called_one():  # C52
    one = accepted(stated_acceptance_len=4.64, is_lifetime_average=True)
    assert "server's life" in acceptance_len(one).source
    assert tokens_per_step(one, 64) is None
    doubted = acceptance_len(accepted(num_steps=2, num_accepted_tokens=2, doubt="moves only every 40 steps"))
    assert "every 40 steps" in doubted.source


def test_tokens_a_step_cover_the_steps_without_a_draft():
    """27 plain steps and one verify step that accepted 35: the acceptance length is 36, the tokens a step 2.25."""
    one = accepted(num_steps=1, num_accepted_tokens=35)
    assert acceptance_len(one, 64).value == 36
    assert tokens_per_step(one, 64).value == pytest.approx(63 / 28)


def test_a_last_step_cut_short_never_makes_steps_vanish():
    # 4 steps that accepted 7 each would be 32 tokens, but the limit of 30 cut the last.
    assert tokens_per_step(accepted(num_steps=4, num_accepted_tokens=28), 30).value == pytest.approx(29 / 4)


def test_counts_of_several_requests_take_off_one_token_each():
    one = accepted(num_steps=20, num_accepted_tokens=40)
    assert tokens_per_step(one, 64, num_requests=4).value == pytest.approx(3.0)


@pytest.mark.parametrize("num_output_tokens", [0, 1])
def test_without_decode_steps_there_is_nothing_to_say(num_output_tokens):
    assert tokens_per_step(accepted(num_accepted_tokens=0), num_output_tokens) is None


def test_a_step_is_told_by_the_server_first():
    one = recorded("llama.cpp-2026-10/spec_selfdraft.sse")
    told = step_s(one, accepted(num_accepted_tokens=52), "yes")
    bursts = step_s(one, None, "yes")
    assert told.value == pytest.approx(tpot_s(one) * 63 / 11)
    assert told.value == pytest.approx(bursts.value, rel=0.01)
    assert told.source == "ms/token x tokens/step" and "bursts" in bursts.source


def test_drafts_beyond_the_end_do_not_make_steps_vanish():
    """As recorded from vLLM: 11 steps, of which 9 held a draft; the last one's 4 accepted drafts were cut to 1."""
    sizes = (1, 1, 1, 5, 5, 5, 5, 5, 5, 5, 5, 2)  # what arrived: the prefill's token, then 11 steps
    one = steady(12, gap_s=0.02, usage=sum(sizes), stated=sizes)
    by_step = (4,) * 9
    detailed = accepted(num_steps=9, num_accepted_tokens=36, accepted_len_by_step=by_step)
    told = request_tokens_per_step(one, detailed, "yes")
    assert told.value == pytest.approx(44 / 11)
    assert "arrivals" in told.source
    assert step_s(one, detailed, "yes").value == pytest.approx(0.02, rel=0.01)
    # Where the counts add up by themselves, the arrivals (which the network may have joined) are not asked.
    exact = accepted(num_steps=9, num_accepted_tokens=33, accepted_len_by_step=(*by_step[:-1], 1))
    assert request_tokens_per_step(one, exact, "yes").value == pytest.approx(44 / 11)
    assert "arrivals" not in request_tokens_per_step(one, exact, "yes").source


def test_arrivals_do_not_overrule_counts_that_account_for_every_token():
    sizes = (1, 3, 2, 1, 3, 3, 2, 1, 2, 3)  # the first step came in two arrivals: 9 arrivals, 8 steps
    one = steady(len(sizes), gap_s=0.02, usage=sum(sizes), stated=sizes)
    counted = accepted(num_steps=8, num_accepted_tokens=12, accepted_at_depth=(7, 5))
    assert request_tokens_per_step(one, counted, "yes").value == pytest.approx(20 / 8)


def test_a_token_is_a_step_only_without_a_drafter():
    short = steady(4)
    assert step_s(short, None, "no").value == pytest.approx(tpot_s(short))
    assert step_s(short, None, "unknown") is None
    assert step_s(short, None, "yes") is None
    assert request_tokens_per_step(short, None, "no").value == 1.0
    assert request_tokens_per_step(short, None, "unknown") is None


def test_a_lifetime_average_is_no_step_time():
    one = steady(20, gap_s=0.02)
    step = step_s(one, accepted(stated_acceptance_len=4.0, is_lifetime_average=True), "yes")
    assert step.value == pytest.approx(0.02)
    assert "bursts" in step.source


def test_more_accepted_tokens_may_be_slower():  # C53
    fast = steady(64, gap_s=0.020)
    sizes = (1, *[3] * 21)
    slow = steady(22, gap_s=0.072, usage=64, stated=sizes)
    fast_tokens, slow_tokens = (request_tokens_per_step(one, None, "unknown").value for one in (fast, slow))
    assert slow_tokens > fast_tokens
    assert step_s(slow, None, "unknown").value > step_s(fast, None, "unknown").value
    assert decode_tok_s(slow) < decode_tok_s(fast)


@given(st.lists(st.integers(0, 7), min_size=6, max_size=40))
def test_every_form_of_the_counts_agrees_with_the_stream(lengths):
    sizes = (1, *[length + 1 for length in lengths])
    one = steady(len(sizes), gap_s=0.02, usage=sum(sizes), stated=sizes)
    expected = sum(sizes[1:]) / len(lengths)
    for counts in (
        accepted(accepted_len_by_step=tuple(lengths)),
        accepted(num_accepted_tokens=sum(lengths)),
        accepted(num_steps=len(lengths)),
        None,
    ):
        assert request_tokens_per_step(one, counts).value == pytest.approx(expected)
        assert step_s(one, counts).value == pytest.approx(0.02)
    for counts in (accepted(accepted_len_by_step=tuple(lengths)), accepted(num_steps=len(lengths))):
        length = acceptance_len(counts, sum(sizes))
        assert length.value == pytest.approx(expected)
        assert length.value >= 1


def test_no_tokens_no_step():
    assert step_s(trace([(0.1, "o")], usage=0), accepted(num_steps=3), "no") is None
