from dataclasses import replace

import pytest
from trace_builder import accepted, repeats, steady

from deepdraft.guards import guards_of
from deepdraft.metrics import points_of
from deepdraft.report import results_table


def verdict(*, acceptance=None, **server):
    run = repeats(steady(8), steady(8), steady(8), **server)
    run = replace(run, measurements=tuple(replace(each, acceptance=acceptance) for each in run.measurements))
    (point,) = points_of(run)
    (report,) = [each for each in guards_of(run, point) if each.name == "simulated_acceptance"]
    return run, report


@pytest.mark.parametrize(
    ("acceptance", "server"),
    [
        (accepted(num_steps=3, num_accepted_tokens=4, is_simulated=True), {"speculation": "yes"}),
        (accepted(num_steps=3, num_accepted_tokens=4), {"speculation": "yes", "simulates_acceptance": "yes"}),
        (None, {"speculation": "yes", "simulates_acceptance": "yes"}),
    ],
)
def test_it_is_loud_where_the_server_says_so(acceptance, server):
    run, report = verdict(acceptance=acceptance, **server)
    assert report.state == "violated"
    assert "ACCEPTANCE IS SIMULATED" in report.evidence
    assert {"tpot_s", "tokens_per_step", "acceptance_len", "output_tok_s"} <= set(report.doubts)
    assert not {"step_s", "ttft_s"} & set(report.doubts)  # what a step costs is what such a run is for
    assert "! simulated_acceptance: ACCEPTANCE IS SIMULATED" in results_table(run)


@pytest.mark.parametrize(
    ("acceptance", "server", "state"),
    [
        (None, {"speculation": "no"}, "verified"),
        (accepted(num_steps=3, is_simulated=False), {"speculation": "yes"}, "verified"),
        (None, {"speculation": "yes", "simulates_acceptance": "no"}, "verified"),
        (accepted(num_steps=3), {"speculation": "yes"}, "not_verifiable"),
        (None, {"speculation": "unknown"}, "not_verifiable"),
    ],
)
def test_silence_is_not_taken_for_honesty_and_doubts_nothing(acceptance, server, state):
    _, report = verdict(acceptance=acceptance, **server)
    assert (report.state, report.doubts) == (state, ())
