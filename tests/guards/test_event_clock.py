import dataclasses

import pytest
from trace_builder import accepted, recorded, repeats, steady, trace

from deepdraft.guards import point_evidence
from deepdraft.guards.event_clock import event_clock
from deepdraft.metrics import points_of


def verdict(*traces, **fields):
    run = repeats(*traces, **fields)
    (point,) = points_of(run)
    return event_clock(point_evidence(run, point))


@pytest.mark.parametrize("name", ["none", "selfdraft", "synthr", "ngram_mod", "tinydraft"])
def test_recorded_streams_are_clean(name):
    one = recorded(f"llama.cpp-2026-10/spec_{name}.sse")
    told = accepted(num_accepted_tokens=one.server_fields["timings"].get("draft_n_accepted", 0))
    assert verdict(one, acceptance=told).state == "verified"


def test_steps_of_one_size_that_nobody_tells_are_not_verifiable():
    report = verdict(recorded("llama.cpp-2026-10/spec_selfdraft.sse"))
    assert report.state == "not_verifiable"
    assert "step_s" in report.doubts and "ttft_s" not in report.doubts  # the first token came alone


def test_a_whole_answer_in_one_read_comes_from_a_buffer():
    one = trace([(2.0, "o"), *[(2.0, "t")] * 64, (2.0, "u"), (2.0, "d")], usage=64)
    report = verdict(one)
    assert report.state == "violated"
    assert report.evidence.startswith("all 64 tokens arrived at once")
    assert {"ttft_s", "tpot_s"} <= set(report.doubts)


def test_all_tokens_in_one_event_are_no_stream():
    assert verdict(trace([(2.0, "t", 300), (2.0, "d")], usage=64)).state == "violated"


def test_a_buffer_that_empties_over_some_reads_is_no_decode():
    one = trace([(2.0 + 0.00002 * place, "t") for place in range(64)], usage=64)
    report = verdict(one)
    assert report.state == "violated"
    assert "a buffer that empties" in report.evidence


def test_three_tokens_may_come_at_once():
    assert verdict(trace([(0.1, "t")] * 3, usage=3)).state == "verified"


def test_a_clock_that_runs_backwards():
    assert verdict(trace([(1.0 - 0.1 * place, "t") for place in range(6)], usage=6)).evidence.startswith(
        "the client's clock ran backwards"
    )


def test_a_token_before_the_request():
    assert "before the request was sent (" in verdict(trace([(0.0, "t"), (0.1, "t")], usage=2)).evidence
    early = dataclasses.replace(steady(8, ttft_s=0.5), written_s=0.6)
    assert "before the request was sent in full" in verdict(early).evidence
    late = dataclasses.replace(steady(8, ttft_s=0.5), end_s=0.1)
    assert "after the end of the stream" in verdict(late).evidence


def test_a_long_stall_is_violated_and_a_short_one_named():
    events = [(0.5 + 0.02 * place + (5.0 if place >= 20 else 0.0), "t") for place in range(64)]
    report = verdict(trace(events, usage=64))
    assert report.state == "violated"
    assert report.evidence.startswith("stalls of up to 5.02 s take 80 % of the decode time")
    assert "ttft_s" not in report.doubts
    events = [(0.5 + 0.02 * place + (0.25 if place >= 200 else 0.0), "t") for place in range(256)]
    report = verdict(trace(events, usage=256))
    assert report.state == "verified"
    assert report.evidence.endswith("1 stalls, the longest 270 ms")


def test_tokens_gathered_on_the_way_are_told_from_steps():
    gathered = steady(12, gap_s=0.16, per_event=8, stated=(8,) * 12)
    untold = verdict(gathered, speculation="unknown")
    assert untold.state == "not_verifiable"  # nothing to compare with
    assert "exactly 8 tokens" in untold.evidence
    assert {"ttft_s", "step_s"} <= set(untold.doubts) and "tpot_s" not in untold.doubts
    report = verdict(gathered, speculation="no")
    assert report.state == "violated"
    assert "arrivals bring 8.0 tokens, the engine commits 1.0 a step" in report.evidence
    told = accepted(num_accepted_tokens=47)  # 95 tokens after the first in 48 steps
    assert verdict(gathered, speculation="yes", acceptance=told).state == "violated"
    told = accepted(num_accepted_tokens=83)  # in 12 steps
    assert verdict(gathered, speculation="yes", acceptance=told).state == "verified"


def test_a_few_arrivals_show_gathering_too_and_a_hiccup_does_not():
    few = steady(4, gap_s=0.16, per_event=8, stated=(8,) * 4)
    report = verdict(few, speculation="no")
    assert report.state == "violated"
    assert "arrivals bring 8.0 tokens" in report.evidence
    hiccup = trace([(0.5, "t"), (0.505, "t"), (0.51, "t"), (0.9, "t")], usage=12, stated=(1, 1, 1, 9))
    assert verdict(hiccup, speculation="no").state == "verified"


def test_no_tokens_are_not_verifiable():
    assert verdict(trace([(0.1, "o"), (0.2, "d")], usage=0)).state == "not_verifiable"
