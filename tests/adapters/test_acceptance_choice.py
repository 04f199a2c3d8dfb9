"""What is believed of several sources of acceptance, and when they tell of one request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deepdraft.adapters.acceptance import of_llamacpp_timings
from deepdraft.adapters.acceptance_choice import best, others_ran, with_steps_from
from deepdraft.records import Acceptance, RequestTrace, ServerReading, Usage


def test_steps_come_from_counters_that_agree_on_the_tokens() -> None:
    stated = of_llamacpp_timings({"draft_n": 300, "draft_n_accepted": 0, "predicted_n": 64})
    assert stated is not None
    counted = Acceptance(
        source="counters of /metrics before and after",
        num_steps=62,
        num_draft_tokens=300,
        num_accepted_tokens=0,
        accepted_at_depth=(0, 0),
    )
    found = with_steps_from(stated, counted)
    assert (found.num_steps, found.accepted_at_depth) == (62, (0, 0))
    assert "timings" in found.source
    assert "counters" in found.source
    assert with_steps_from(stated, replace(counted, num_draft_tokens=500)) == stated
    assert with_steps_from(stated, None) == stated


def test_sources_that_contradict_each_other_are_a_doubt() -> None:
    stated = Acceptance(source="the answer", num_steps=10, num_accepted_tokens=20)
    close = Acceptance(source="counters", num_steps=10, num_accepted_tokens=21)
    far = Acceptance(source="counters", num_steps=10, num_accepted_tokens=5)
    assert best([None, stated, close]) == stated
    found = best([stated, far])
    assert found is not None
    assert found.doubt == "counters says 1.50, not 3.00"
    assert (found.num_steps, found.num_accepted_tokens) == (10, 20)
    assert best([None, None]) is None


def test_averages_over_other_steps_are_not_held_against_a_count() -> None:
    stated = Acceptance(source="the answer", num_steps=10, num_accepted_tokens=20)
    gauge = Acceptance(source="gauge", stated_acceptance_len=1.2, is_lifetime_average=True)
    interval = Acceptance(source="server log: 1 line", stated_acceptance_len=1.2, doubt="an interval")
    assert best([stated, interval, gauge]) == stated
    exact = Acceptance(source="server log: 1 line", stated_acceptance_len=1.2)
    found = best([stated, exact])
    assert found is not None
    assert found.doubt is not None


def reading(*, num_running: int = 0, num_waiting: int = 0, **counters: float) -> ServerReading:
    return ServerReading(
        at_s=0.0, source="/metrics", num_running=num_running, num_waiting=num_waiting, counters=counters
    )


@pytest.mark.parametrize(
    ("before", "gained", "is_so"),
    [
        (reading(generation_tokens=100), 64, False),
        (reading(generation_tokens=100), 69, False),  # 64 and what one more step may have committed
        (reading(generation_tokens=100), 80, True),
        (reading(num_running=1, generation_tokens=100), 64, True),
        (reading(num_waiting=1), 64, True),
        (None, 64, False),
    ],
)
def test_others_show_in_the_readings(before: ServerReading | None, gained: int, is_so: bool) -> None:
    trace = RequestTrace(usage=Usage(completion_tokens=64))
    assert others_ran(trace, before, reading(generation_tokens=100 + gained)) is is_so


def test_without_a_count_of_ours_more_tokens_say_nothing() -> None:
    assert not others_ran(RequestTrace(), reading(generation_tokens=0), reading(generation_tokens=500))
