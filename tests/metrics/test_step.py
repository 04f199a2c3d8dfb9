import pytest
from trace_builder import recorded, steady, trace

from deepdraft.metrics import steps_of, tpot_s, why_no_steps


@pytest.mark.parametrize(
    ("name", "num_steps"),
    [("none", 63), ("selfdraft", 63 - 52), ("synthr", 63 - 40), ("ngram_mod", 63 - 35)],
)
def test_bursts_agree_with_the_drafts_the_engine_accepted(name, num_steps):  # C25
    one = recorded(f"llama.cpp-2026-10/spec_{name}.sse")
    accepted = one.server_fields["timings"].get("draft_n_accepted", 0)
    steps = steps_of(one)
    assert steps.num_steps == num_steps == 63 - accepted
    assert steps.tokens_per_step == pytest.approx(63 / num_steps)
    assert steps.step_s == pytest.approx(tpot_s(one) * 63 / num_steps)


def test_a_last_step_cut_short_may_join_the_one_before():
    steps = steps_of(recorded("llama.cpp-2026-10/spec_tinydraft.sse"))
    assert steps.num_steps in (62, 63)  # its last step drafts nothing and takes a fifth of the others'


def test_a_step_is_told_from_a_token():  # C22: 1, 4, 2, 5 tokens an event, 20 ms apart
    sizes = (1, *[4, 2, 5, 1] * 8)
    one = steady(len(sizes), gap_s=0.02, usage=sum(sizes), stated=sizes)
    steps = steps_of(one)
    assert steps.step_s == pytest.approx(0.02)
    assert steps.tokens_per_step == pytest.approx(3.0)
    assert steps.tokens_by_step == sizes[1:]
    assert tpot_s(one) == pytest.approx(0.02 / 3)
    assert steps.is_exact and steps.doubt is None


def test_bursts_of_one_size_are_doubted():  # a server that sends each 4th token only looks the same
    steps = steps_of(steady(12, gap_s=0.02, per_event=4, stated=(4,) * 12))
    assert steps.tokens_per_step == pytest.approx(4.0)
    assert "exactly 4 tokens" in steps.doubt
    assert steps_of(steady(12)).doubt is None


def test_bursts_that_came_late_together_are_still_of_one_size():
    events = [(0.5 + 0.02 * place, "t") for place in range(12)]
    events[5] = (events[6][0] - 0.001, "t")  # the sixth comes with the seventh
    steps = steps_of(trace(events, usage=48, stated=(4,) * 12))
    assert 8 in steps.tokens_by_step
    assert steps.has_equal_bursts and "exactly 4 tokens" in steps.doubt


def test_a_drafter_s_even_steps_are_no_common_size():
    sizes = (1, 2, 4, 4, 6, 4, 2, 4, 6, 4)
    assert not steps_of(steady(len(sizes), usage=sum(sizes), stated=sizes)).has_equal_bursts


def test_uncounted_tokens_still_give_the_time_of_a_step():
    steps = steps_of(steady(12, gap_s=0.02, usage=None))
    assert steps.step_s == pytest.approx(0.02)
    assert steps.tokens_per_step is None
    assert steps.doubt == "nobody counted the tokens"


def test_too_few_steps_are_not_told():
    short = steady(4)
    assert steps_of(short) is None
    assert "too few" in why_no_steps(short)
    assert why_no_steps(trace([(0.1, "o")])) == "no token arrived"
    assert why_no_steps(steady(12)) is None


def test_events_gathered_on_the_way_into_few_reads_are_not_told():
    events = [(0.5 + 0.5 * (place // 32), "t") for place in range(96)]
    one = trace(events, usage=96)
    assert steps_of(one) is None
    assert why_no_steps(one) == "the tokens arrived in 3 reads: too few steps to tell"


def test_a_clock_that_runs_backwards_gives_no_steps():
    assert steps_of(trace([(1.0 - 0.1 * place, "t") for place in range(9)], usage=9)) is None
