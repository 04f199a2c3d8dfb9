import dataclasses

import pytest
from trace_builder import header, repeats, request, steady, trial

from deepdraft.guards import point_evidence
from deepdraft.guards.client_lag import client_lag
from deepdraft.metrics import points_of
from deepdraft.records import Run


def verdict(lags, ttft_s=0.5, cpu_s=0.2):
    run = repeats(*[steady(8, ttft_s=ttft_s)] * len(lags))
    trials = tuple(
        dataclasses.replace(trial, loop_lag_max_s=lag, client_cpu_s=cpu_s)
        for trial, lag in zip(run.trials, lags, strict=True)
    )
    run = dataclasses.replace(run, trials=trials)
    (point,) = points_of(run)
    return client_lag(point_evidence(run, point))


def test_a_busy_client_is_client_bound():  # C51
    report = verdict([0.050])
    assert report.state == "violated"
    assert report.evidence == (
        "client-bound: the client's event loop was late by 50 ms at most (10 % of TTFT), CPU 2 % of a core"
    )
    assert {"ttft_s", "tpot_s", "output_tok_s"} <= set(report.doubts)


@pytest.mark.parametrize(
    ("lag", "ttft_s", "state"),
    [(0.004, 0.05, "verified"), (0.006, 0.05, "violated"), (0.006, 10.0, "verified"), (0.11, 10.0, "violated")],
)
def test_the_line_is_five_milliseconds_or_one_per_cent(lag, ttft_s, state):
    assert verdict([lag], ttft_s).state == state


def test_a_full_core_is_client_bound():
    assert verdict([0.001], cpu_s=8.5).state == "violated"


def test_one_hiccup_of_three_is_named_but_can_not_move_the_median():
    report = verdict([0.001, 0.050, 0.001])
    assert report.state == "verified"
    assert "above the line in 1 of 3 repeats" in report.evidence
    assert verdict([0.050, 0.050, 0.001]).state == "violated"


def test_unrecorded_lag_is_not_verifiable():
    assert verdict([None, None], cpu_s=None).state == "not_verifiable"


def test_several_streams_that_start_together_are_allowed_more():
    for lag, state in ((0.019, "verified"), (0.021, "violated")):
        requests = tuple(request(steady(8), "len1000-c4-r0", request_index=place) for place in range(4))
        line = trial("len1000-c4-r0", concurrency=4, loop_lag_max_s=lag)
        (point,) = points_of(run := Run(header=header(), measurements=requests, trials=(line,)))
        assert client_lag(point_evidence(run, point)).state == state
