import dataclasses

import pytest
from trace_builder import reading, repeats, steady

from deepdraft.guards import point_evidence
from deepdraft.guards.cold_prefix import cold_prefix
from deepdraft.metrics import points_of
from deepdraft.records import ColdStep


def verdict(run):
    (point,) = points_of(run)
    return cold_prefix(point_evidence(run, point))


def test_no_cached_tokens_are_verified():
    report = verdict(repeats(*[steady(8, cached=0)] * 3))
    assert report.state == "verified"
    assert report.evidence == "0 cached tokens in each of 3 answers"
    assert report.doubts == ()


def test_a_hit_is_violated_with_its_share():
    report = verdict(repeats(steady(8, cached=0), steady(8, cached=960), steady(8, cached=0)))
    assert report.state == "violated"
    assert report.evidence == "1 of 3 requests were served from a cache: up to 960 of 1,000 prompt tokens (96 %)"
    assert "ttft_s" in report.doubts and "tpot_s" not in report.doubts


@pytest.mark.parametrize(("cached", "state"), [(9, "verified"), (10, "violated")])
def test_the_shared_template_of_seven_tokens_is_no_hit(cached, state):
    assert verdict(repeats(*[steady(8, cached=cached)] * 2)).state == state


def test_an_unknown_template_is_a_small_count_alike_for_all():
    unknown = {"overhead_len": None}
    assert verdict(repeats(*[steady(8, cached=24)] * 3, prompt=unknown)).state == "verified"
    assert verdict(repeats(*[steady(8, cached=count) for count in (24, 24, 80)], prompt=unknown)).state == "violated"
    assert verdict(repeats(*[steady(8, cached=512)] * 3, prompt=unknown)).state == "violated"
    assert verdict(repeats(steady(8, cached=24), prompt=unknown)).state == "violated"  # alone it may be anything


def test_untold_is_not_verifiable_and_never_zero():
    report = verdict(repeats(*[steady(8, cached=None)] * 3))
    assert report.state == "not_verifiable"
    assert "tells no cached tokens" in report.evidence
    assert "ttft_s" in report.doubts


def test_half_told_is_not_verifiable():
    report = verdict(repeats(steady(8, cached=0), steady(8, cached=None)))
    assert report.state == "not_verifiable"
    assert "only 1 of 2" in report.evidence


@pytest.mark.parametrize(
    ("cached", "probes", "state"),
    [(0, 0, "verified"), (9, 0, "verified"), (900, 0, "violated"), (900, 2, "not_verifiable")],
)
def test_counters_stand_in_for_untold_counts(cached, probes, state):
    run = repeats(
        steady(8, cached=None),
        before=reading(0, cached_tokens=5000),
        after=reading(1, cached_tokens=5000 + cached),
        num_probe_requests=probes,
    )
    report = verdict(run)
    assert report.state == state
    assert f"rose by {cached}" in report.evidence
    assert ("90 % of their prompts" in report.evidence) == (state == "violated")


def test_a_counter_that_was_reset_tells_nothing():
    run = repeats(steady(8, cached=None), before=reading(0, cached_tokens=5000), after=reading(1, cached_tokens=3))
    assert verdict(run).state == "not_verifiable"


def test_a_server_without_a_prefix_cache_is_cold():
    assert verdict(repeats(steady(8, cached=None), prefix_cache="no")).state == "verified"
    assert verdict(repeats(steady(8, cached=900), prefix_cache="no")).state == "violated"


def test_a_refused_flush_is_no_evidence():
    steps = (
        ColdStep(means="unique_head", is_done=True, evidence="zebra"),
        ColdStep(means="flush", is_done=False, evidence="400 requests are running"),
    )
    report = verdict(repeats(steady(8, cached=None), cold_steps=steps))
    assert report.state == "not_verifiable"
    assert "done against hits: unique_head" in report.evidence
    assert "not done: flush (400 requests are running)" in report.evidence


def test_a_done_flush_proves_nothing_either():
    steps = (ColdStep(means="flush", is_done=True, evidence="200"),)
    assert verdict(repeats(steady(8, cached=None), cold_steps=steps)).state == "not_verifiable"


def test_a_slow_first_request_is_not_called_a_hit():
    slow_first = [steady(8, ttft_s=ttft, cached=0) for ttft in (3.0, 0.5, 0.5)]
    assert verdict(repeats(*slow_first)).state == "verified"
    untold = [steady(8, ttft_s=ttft, cached=None) for ttft in (3.0, 0.5, 0.5)]
    report = verdict(repeats(*untold))
    assert report.state == "not_verifiable"
    assert "a warm-up effect, or hits after it" in report.evidence


def test_a_server_s_zero_is_not_believed_when_the_prompt_was_there_before_and_ttft_looks_like_a_hit():
    again = {"spec": {"keep_cache": True}}
    report = verdict(repeats(*[steady(8, ttft_s=ttft, cached=0) for ttft in (3.0, 0.5, 0.5)], **again))
    assert report.state == "not_verifiable"
    assert report.evidence.startswith(
        "the server says 0 cached tokens in each of 3 answers, but prompts were sent again"
    )
    assert "ttft_s" in report.doubts
    assert verdict(repeats(*[steady(8, ttft_s=0.5, cached=0)] * 3, **again)).state == "verified"


def test_one_fast_repeat_is_named_when_nothing_else_can_tell():
    report = verdict(repeats(*[steady(8, ttft_s=ttft, cached=None) for ttft in (1.0, 1.0, 0.1)]))
    assert report.state == "not_verifiable"
    assert "one TTFT is 10.0 times shorter than another" in report.evidence
    calm = verdict(repeats(*[steady(8, ttft_s=ttft, cached=None) for ttft in (1.0, 1.1, 0.9)]))
    assert "times" not in calm.evidence


def test_a_warmup_that_hits_says_nothing_of_the_point():
    run = repeats(steady(8, cached=0), steady(8, cached=990))
    warm = dataclasses.replace(run.measurements[1], is_warmup=True)
    assert verdict(dataclasses.replace(run, measurements=(run.measurements[0], warm))).state == "verified"


@pytest.mark.parametrize(
    ("computed", "state"),
    [(1000, "verified"), (991, "verified"), (100, "violated"), (4000, "not_verifiable")],
)
def test_what_was_sent_and_not_computed_was_cached(computed, state):
    """SGLang counts the prompt tokens it computes, also where it tells no cached ones; 1,000 were sent."""
    run = repeats(
        steady(8, cached=None),
        before=reading(0, uncached_prompt_tokens=70_000),
        after=reading(1, uncached_prompt_tokens=70_000 + computed),
    )
    report = verdict(run)
    assert report.state == state
    if state != "not_verifiable":
        assert f"all but {1000 - computed}" in report.evidence
