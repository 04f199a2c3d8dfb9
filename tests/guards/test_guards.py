"""Laws that hold for every guard, on whatever a server and a client may have left behind."""

import re
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from trace_builder import accepted, header, reading, repeats, request, steady, trial

from deepdraft.guards import GUARDS, guards_of
from deepdraft.metrics import FIGURE_NAMES, points_of
from deepdraft.records import EventLog, RequestTrace, Run, Usage
from deepdraft.report import results_csv, results_object, results_table

NAMES = [
    "cold_prefix",
    "prompt_len",
    "truncation",
    "early_stop",
    "bundled_tokens",
    "simulated_acceptance",
    "event_clock",
    "background_load",
    "client_lag",
    "drift",
]


def test_a_clean_sweep_raises_no_guard():
    counters = {"num_requests": 1.0, "prompt_tokens": 1000.0, "generation_tokens": 64.0}
    run = repeats(
        *[steady(64, ttft_s=ttft) for ttft in (0.50, 0.51, 0.505)],
        before=reading(0, **dict.fromkeys(counters, 0.0)),
        after=reading(9, **counters),
        loop_lag_max_s=0.001,
        client_cpu_s=0.1,
        speculation="no",
    )
    (point,) = points_of(run)
    reports = guards_of(run, point)
    assert [report.name for report in reports] == NAMES
    assert {report.state for report in reports} == {"verified"}
    assert not any(report.doubts for report in reports)


def test_a_point_without_a_single_answer_has_every_verdict():
    run = Run(header=header(), measurements=(request(RequestTrace(), failed="refused"),), trials=(trial(),))
    (point,) = points_of(run)
    assert {report.state for report in guards_of(run, point)} == {"not_verifiable"}


def test_the_page_describes_every_guard():
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "guards.md").read_text(encoding="utf-8")
    assert set(NAMES) <= set(re.findall(r"^## `(\w+)`", page, re.MULTILINE))
    assert len(GUARDS) == len(NAMES)


COUNT = st.none() | st.integers(0, 3000)
TRACES = st.builds(
    lambda gaps, kinds, chars, stated, tokenizer, usage, finish, done, end_s: RequestTrace(
        end_s=end_s,
        events=EventLog(
            gaps_us=tuple(gaps),
            kinds=kinds,
            num_chars=tuple(chars),
            num_tokens=tuple(stated) if stated is not None else None,
            tokenizer_tokens=tuple(tokenizer) if tokenizer is not None else None,
        ),
        usage=usage,
        finish_reason=finish,
        saw_done=done,
    ),
    gaps=st.lists(st.integers(-1000, 10**7), max_size=20),
    kinds=st.text(alphabet="trcopufkdex", max_size=20),
    chars=st.lists(st.integers(0, 50), max_size=20),
    stated=st.none() | st.lists(st.integers(0, 20), max_size=20),
    tokenizer=st.none() | st.lists(st.integers(0, 20), max_size=20),
    usage=st.none() | st.builds(Usage, prompt_tokens=COUNT, completion_tokens=COUNT, cached_tokens=COUNT),
    finish=st.sampled_from([None, "stop", "length"]),
    done=st.booleans(),
    end_s=st.none() | st.floats(0, 100),
)
READINGS = st.none() | st.builds(
    reading,
    at_s=st.just(0.0),
    running=COUNT,
    waiting=COUNT,
    num_requests=st.integers(0, 5),
    cached_tokens=st.integers(0, 2000),
    generation_tokens=st.integers(0, 200),
)
ROLES = st.sampled_from(["single", "first", "second"])


@settings(max_examples=100, deadline=None)
@given(
    traces=st.lists(st.tuples(TRACES, ROLES, st.booleans()), min_size=1, max_size=4),
    before=READINGS,
    after=READINGS,
    lag=st.none() | st.floats(0, 1),
    has_trial=st.booleans(),
    speculation=st.sampled_from(["yes", "no", "unknown"]),
    steps=COUNT,
)
def test_every_verdict_is_one_of_three_and_nothing_raises(traces, before, after, lag, has_trial, speculation, steps):
    measurements = tuple(
        request(
            one,
            f"len1000-c1-r{place // 2}",
            role=role,
            request_index=place,
            started_at_s=float(place),
            failed="stalled" if is_failed else None,
            acceptance=accepted(num_steps=steps, num_accepted_tokens=steps),
        )
        for place, (one, role, is_failed) in enumerate(traces)
    )
    trials = tuple(
        trial(f"len1000-c1-r{place}", before=before, after=after, loop_lag_max_s=lag, took_s=99.0)
        for place in range(2)
        if has_trial
    )
    run = Run(header=header(speculation=speculation), measurements=measurements, trials=trials)
    for point in points_of(run):
        reports = guards_of(run, point)
        assert [report.name for report in reports] == NAMES
        for report in reports:
            assert report.state in ("verified", "violated", "not_verifiable")
            assert report.evidence
            assert set(report.doubts) <= {*FIGURE_NAMES, "context_len"}
            assert report.state != "verified" or not report.doubts
    assert max(map(len, results_table(run).splitlines())) <= 80
    assert results_object(run)["points"]
    assert results_csv(run)
