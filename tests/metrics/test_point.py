import dataclasses

import pytest
from trace_builder import accepted, header, recorded, repeats, request, steady, trace, trial

from deepdraft.metrics import points_of
from deepdraft.records import Run


def run(measurements, trials=(), **fields):
    return Run(header=header(**fields), measurements=tuple(measurements), trials=tuple(trials))


def test_repeats_become_one_point():
    (point,) = points_of(repeats(*[steady(64, ttft_s=ttft) for ttft in (0.50, 0.52, 0.51)]))
    brief = point.summary("ttft_s")
    assert (brief.median, brief.low, brief.high, brief.num_samples) == pytest.approx((0.51, 0.50, 0.52, 3))
    assert point.key == (1000, 1)
    assert (point.num_requests, point.num_ok, point.num_failed) == (3, 3, 0)
    assert point.peak_concurrency == 1


def test_the_actual_length_is_kept_beside_the_asked_one():
    (point,) = points_of(repeats(*[steady(8, prompt=count) for count in (1003, 1001, 1002)]))
    assert (point.context_len, point.asked_context_len, point.context_len_source) == (1002, 1000, "the server")


def test_points_are_ordered_and_apart():
    requests = [
        request(steady(8), f"len{length}-c{c}-r0", asked=length, started_at_s=at_s)
        for at_s, (length, c) in enumerate([(8000, 1), (1000, 4), (1000, 1)])
    ]
    trials = [
        trial(
            one.trial_id, context_len=one.prompt.asked_len, concurrency=c, started_at_s=one.started_at_s, took_s=1.0
        )
        for one, c in zip(requests, (1, 4, 1), strict=True)
    ]
    assert [point.key for point in points_of(run(requests, trials))] == [(1000, 1), (1000, 4), (8000, 1)]


def test_failures_warmups_and_old_tries_take_no_part():
    good = [request(steady(64, ttft_s=0.5), "len1000-c1-r0", started_at_s=101.0)]
    others = [
        request(steady(64, ttft_s=9.0), "warmup-0", is_warmup=True, started_at_s=0.0),
        request(trace([]), "len1000-c1-r0", request_index=1, failed="stalled", started_at_s=102.0),
        request(steady(64, ttft_s=7.0), "len1000-c1-r0", started_at_s=50.0),
    ]
    trials = [
        trial("warmup-0", is_warmup=True, started_at_s=0.0),
        trial("len1000-c1-r0", started_at_s=100.0),
    ]
    (point,) = points_of(run(others + good, trials))
    assert point.summary("ttft_s").high == pytest.approx(0.5)
    assert (point.num_requests, point.num_ok, point.num_failed) == (2, 1, 1)
    assert (point.num_warmups, point.num_superseded) == (1, 1)


def test_a_point_that_only_failed_is_there_without_figures():
    (point,) = points_of(run([request(trace([]), failed="refused")], [trial()]))
    assert point.figures == {}
    assert point.num_failed == 1
    assert point.context_len == 1000
    assert point.summary("ttft_s") is None


def test_a_warmup_alone_is_no_point():
    assert points_of(run([request(steady(8), "warmup-0", is_warmup=True)])) == ()
    assert points_of(run([])) == ()


def test_refused_pairs_give_no_figures_but_are_named():
    first = request(steady(1, usage=1), role="first", max_tokens=1)
    second = request(steady(17, cached=990), role="second", max_tokens=17, started_at_s=2.0)
    (point,) = points_of(run([first, second], [trial()]))
    assert point.figures == {}
    assert [pair.reason for pair in point.refused_pairs] == [
        "the second request was served from a cache: 990 of 1,000 prompt tokens"
    ]
    assert (point.num_requests, point.num_ok) == (2, 0)


def test_two_point_repeats_become_one_point():
    measurements, trials = [], []
    for place, gap_s in enumerate((0.05, 0.052)):
        trial_id = f"len1000-c1-r{place}"
        measurements += [
            request(steady(1, ttft_s=1.0), trial_id, role="first", max_tokens=1, started_at_s=10.0 * place),
            request(
                steady(17, ttft_s=1.0, gap_s=gap_s),
                trial_id,
                role="second",
                max_tokens=17,
                started_at_s=10.0 * place + 3,
            ),
        ]
        trials.append(trial(trial_id, repeat_index=place, started_at_s=10.0 * place))
    (point,) = points_of(run(measurements, trials))
    assert point.summary("tpot_s").median == pytest.approx(0.051)
    assert point.summary("tpot_s").num_samples == 2
    assert point.summary("output_tok_s") is None  # pairs are no workload
    assert point.pooled_tpot_s == pytest.approx(0.051)


def test_the_token_weighted_mean_has_its_own_name():  # C54
    traces = [steady(11, gap_s=0.050), steady(1001, gap_s=0.005)]
    (point,) = points_of(repeats(*traces))
    assert point.summary("tpot_s").median == pytest.approx(0.0275)
    assert point.pooled_tpot_s == pytest.approx((0.5 + 5.0) / 1010)


def test_twelve_requests_give_no_p99():  # C50
    (point,) = points_of(repeats(*[steady(8, ttft_s=0.5 + 0.001 * place) for place in range(12)]))
    by_p = {one.p: one for one in point.percentiles["ttft_s"]}
    assert by_p[0.99].value is None
    assert by_p[0.99].bound == "≥ max of 12"
    assert by_p[0.5].value == pytest.approx(0.5055)


def test_throughput_and_concurrency_are_of_the_trial():
    requests = [
        request(steady(64), "len1000-c4-r0", request_index=place, started_at_s=0.01 * place) for place in range(4)
    ]
    (point,) = points_of(run(requests, [trial("len1000-c4-r0", concurrency=4)]))
    assert point.peak_concurrency == 4
    assert point.summary("output_tok_s").num_samples == 1
    assert point.summary("output_tok_s").median == pytest.approx(256 / (0.03 + steady(64).end_s))
    assert point.summary("ttft_s").num_samples == 4
    assert point.summary("mean_concurrency").median == pytest.approx(4, rel=0.05)


def test_counters_around_a_trial_stand_in_for_a_lone_request():
    one = recorded("llama.cpp-2026-10/spec_selfdraft.sse")
    counts = accepted(num_steps=11, num_accepted_tokens=52)
    lone = run(
        [request(one, "len982-c1-r0", asked=982)],
        [trial("len982-c1-r0", context_len=982, acceptance=counts, took_s=20)],
        speculation="yes",
    )
    (point,) = points_of(lone)
    assert point.summary("acceptance_len").median == pytest.approx(1 + 52 / 11)
    assert point.summary("tokens_per_step").median == pytest.approx(63 / 11)
    assert point.summary("step_s").median == pytest.approx(0.3174, rel=0.01)


def test_counters_around_several_requests_are_one_sample_a_trial():
    sizes = (1, *[4] * 15)
    stream = steady(16, gap_s=0.08, usage=61, stated=sizes)
    requests = [request(stream, "len1000-c2-r0", request_index=place) for place in range(2)]
    counts = accepted(num_steps=30, num_accepted_tokens=90, source="counters")
    (point,) = points_of(run(requests, [trial("len1000-c2-r0", concurrency=2, acceptance=counts)], speculation="yes"))
    assert point.summary("acceptance_len").num_samples == 1
    assert point.summary("acceptance_len").median == pytest.approx(4.0)
    assert point.summary("tokens_per_step").median == pytest.approx(4.0)
    assert point.summary("step_s").median == pytest.approx(0.08)
    assert point.figures["tokens_per_step"].sources == ("counters",)


def test_needles_are_counted():
    requests = [
        dataclasses.replace(request(steady(8), f"len1000-c1-r{place}"), needle_found=found)
        for place, found in enumerate((True, False, None))
    ]
    (point,) = points_of(run(requests))
    assert (point.num_needles_found, point.num_needles) == (1, 2)


def test_sources_name_where_figures_come_from():
    (point,) = points_of(repeats(steady(64), steady(64), speculation="no"))
    assert point.figures["tpot_s"].sources == ("one token an event",)
    assert point.figures["step_s"].sources == ("no drafter is active: a step is a token",)
    assert point.figures["ttft_s"].sources == ()
