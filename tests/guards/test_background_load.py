import pytest
from trace_builder import header, reading, repeats, request, steady, trace, trial

from deepdraft.guards import point_evidence
from deepdraft.guards.background_load import background_load
from deepdraft.metrics import points_of
from deepdraft.records import Run


def verdict(run):
    (point,) = points_of(run)
    return background_load(point_evidence(run, point))


def counters(requests=0, prompt=0, output=0):
    base = {"num_requests": 10, "prompt_tokens": 9000, "generation_tokens": 700}
    return {
        "num_requests": base["num_requests"] + requests,
        "prompt_tokens": base["prompt_tokens"] + prompt,
        "generation_tokens": base["generation_tokens"] + output,
    }


def counted(requests=1, prompt=1000, output=64, **fields):
    return repeats(
        steady(64),
        before=reading(0, **counters()),
        after=reading(9, **counters(requests, prompt, output)),
        **fields,
    )


def test_counters_that_moved_by_ours_alone():
    report = verdict(counted())
    assert report.state == "verified"
    assert report.evidence == (
        "the server's counters moved by 1 requests, 1,000 prompt tokens, 64 output tokens: ours alone"
    )


@pytest.mark.parametrize("moved", [{"requests": 2}, {"prompt": 1500}, {"output": 90}])
def test_counters_that_moved_further(moved):
    report = verdict(counted(**moved))
    assert report.state == "violated"
    assert "ours" in report.evidence
    assert {"ttft_s", "tpot_s"} <= set(report.doubts)


def test_our_own_probes_are_allowed_for():
    assert verdict(counted(requests=3, prompt=1400, output=66, num_probe_requests=2)).state == "verified"
    assert verdict(counted(requests=4, num_probe_requests=2)).state == "violated"


def test_counters_that_lag_or_were_reset_do_not_tell():
    report = verdict(counted(output=0))
    assert report.state == "not_verifiable"
    assert "lag" in report.evidence
    reset = repeats(steady(64), before=reading(0, num_requests=10), after=reading(9, num_requests=1))
    assert verdict(reset).state == "not_verifiable"


def test_engines_that_leave_out_cached_prompt_tokens_are_no_lag():
    run = repeats(steady(64, cached=7), before=reading(0, prompt_tokens=0), after=reading(9, prompt_tokens=993))
    assert verdict(run).state == "verified"


def test_gauges():
    idle, busy = reading(0), reading(5, running=2)
    assert verdict(repeats(steady(64), before=idle, after=idle, during=(reading(5, running=1),))).state == "verified"
    report = verdict(repeats(steady(64), before=idle, after=idle, during=(busy,)))
    assert (report.state, report.evidence) == ("violated", "2 requests ran or waited at once, of which 1 ours")
    report = verdict(repeats(steady(64), before=reading(0, waiting=3), after=idle))
    assert (report.state, report.evidence) == ("violated", "3 requests of others ran or waited before ours were sent")
    assert verdict(repeats(steady(64), before=idle, after=reading(9, running=1))).state == "violated"
    assert verdict(repeats(steady(64), before=idle, after=idle)).state == "not_verifiable"


def test_a_gauge_that_lags_is_overruled_by_exact_counters():
    run = repeats(
        steady(64),
        before=reading(0, running=1, **counters()),
        after=reading(9, **counters(1, 1000, 64)),
        during=(reading(5, running=1),),
    )
    assert verdict(run).state == "verified"


def test_as_many_as_we_sent_are_ours():
    requests = [request(steady(64), "len1000-c4-r0", request_index=place) for place in range(4)]
    line = trial("len1000-c4-r0", concurrency=4, before=reading(0), during=(reading(1, running=3, waiting=1),))
    assert verdict(Run(header=header(), measurements=tuple(requests), trials=(line,))).state == "verified"


def test_no_readings_and_no_trial():
    assert verdict(repeats(steady(64))).evidence == "the server tells neither its load nor its counters"
    cut_short = Run(header=header(), measurements=(request(steady(64)),))
    assert verdict(cut_short).evidence.startswith("the trial was cut short")


def test_a_failed_request_may_or_may_not_be_counted():
    for moved, state in ((1, "verified"), (2, "verified"), (3, "violated")):
        requests = (
            request(trace([]), failed="stalled", request_index=1),
            request(steady(64), request_index=0),
        )
        line = trial(before=reading(0, num_requests=0), after=reading(9, num_requests=moved))
        assert verdict(Run(header=header(), measurements=requests, trials=(line,))).state == state
