import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import accepted, header, repeats, request, steady, trial

from deepdraft.guards import point_evidence
from deepdraft.guards.drift import drift
from deepdraft.metrics import points_of
from deepdraft.records import Run


def verdict_of(run):
    (point,) = points_of(run)
    return drift(point_evidence(run, point))


def verdict(ttfts, gaps=None):
    gaps = gaps or [0.02] * len(ttfts)
    return verdict_of(repeats(*[steady(64, ttft_s=ttft, gap_s=gap) for ttft, gap in zip(ttfts, gaps, strict=True)]))


def test_repeats_close_together_are_verified():
    report = verdict([0.50, 0.51, 0.52])
    assert report.state == "verified"
    assert report.evidence == "TTFT within 3.9 % over 3 repeats; time a step within 0 % over 3 repeats"


def test_a_trend_is_violated():
    report = verdict([0.50, 0.60, 0.70])
    assert report.state == "violated"
    assert "TTFT rose by 40 % from the first repeat to the last of 3" in report.evidence
    assert "ttft_s" in report.doubts and "tpot_s" not in report.doubts
    assert verdict([0.5] * 3, [0.030, 0.025, 0.020]).doubts[0] == "tpot_s"


def test_scatter_without_a_trend_is_not_verifiable():
    report = verdict([0.50, 0.70, 0.52])
    assert report.state == "not_verifiable"
    assert "TTFT scatters by 38 % over 3 repeats, without a trend" in report.evidence


def test_five_repeats_go_by_rank():
    assert verdict([0.50, 0.55, 0.54, 0.65, 0.70]).state == "violated"  # one step back in a clear trend: rho 0.9
    assert verdict([0.50, 0.70, 0.55, 0.65, 0.60]).state == "not_verifiable"


def test_three_milliseconds_are_the_clients_own():
    assert verdict([0.0100, 0.0110, 0.0125]).state == "verified"
    assert verdict([0.0100, 0.0130, 0.0160]).state == "not_verifiable"  # beyond it, and no more than chance can do
    assert verdict([0.0100, 0.0140, 0.0190]).state == "violated"


@pytest.mark.parametrize("num", [1, 2])
def test_fewer_than_three_repeats_show_no_drift(num):
    report = verdict([0.5, 0.9][:num])
    assert report.state == "not_verifiable"
    assert report.evidence.endswith("at least 3 are needed to see a drift")


def test_requests_of_one_trial_are_one_repeat():
    requests = [
        request(steady(8, ttft_s=0.5 + 0.1 * place), "len1000-c4-r0", request_index=place) for place in range(4)
    ]
    run = Run(header=header(), measurements=tuple(requests), trials=(trial("len1000-c4-r0", concurrency=4),))
    assert verdict_of(run).state == "not_verifiable"


def test_order_is_that_of_time_not_of_the_repeats_numbers():
    run = repeats(*[steady(8, ttft_s=ttft) for ttft in (0.5, 0.6, 0.7)])
    shuffled = Run(
        header=run.header, measurements=run.measurements[::-1], trials=(run.trials[1], run.trials[2], run.trials[0])
    )
    assert verdict_of(shuffled).state == "violated"


def two_points(ttfts, other_ttfts):
    """The verdict for the first of two points, measured in the same rounds."""
    runs = [
        repeats(*[steady(64, ttft_s=ttft) for ttft in each], context_len=context_len)
        for each, context_len in ((ttfts, 1000), (other_ttfts, 2000))
    ]
    run = Run(
        header=header(),
        measurements=runs[0].measurements + runs[1].measurements,
        trials=runs[0].trials + runs[1].trials,
    )
    return drift(point_evidence(run, points_of(run)[0]))


def test_a_small_trend_of_few_repeats_needs_a_second_witness():
    alone = verdict([0.50, 0.53, 0.56])
    assert alone.state == "not_verifiable"
    assert "TTFT rose by 12 %" in alone.evidence and "no other point to compare" in alone.evidence
    assert "ttft_s" in alone.doubts and "tpot_s" not in alone.doubts
    seconded = two_points([0.50, 0.53, 0.56], [0.90, 0.98, 1.02])
    assert seconded.state == "violated"
    assert "TTFT rose by 12 % from the first repeat to the last of 3, and the other points with it (+12 %)" in (
        seconded.evidence
    )


@pytest.mark.parametrize(
    "others",
    [
        [1.02, 0.98, 0.90],  # the other way
        [0.90, 1.10, 1.02],  # no trend
        [0.98, 1.00, 1.02],  # too little
        [0.90, 1.02],  # another number of repeats: not the same rounds
    ],
)
def test_other_points_that_move_otherwise_are_no_witness(others):
    assert two_points([0.50, 0.53, 0.56], others).state == "not_verifiable"


def test_a_jump_in_one_repeat_needs_one_too():
    alone = verdict([0.50, 0.51, 2.0])
    assert alone.state == "not_verifiable"
    assert (
        "TTFT rose by 300 % from the first repeat to the last of 3 in one jump, which may be chance" in alone.evidence
    )
    assert two_points([0.50, 0.51, 2.0], [0.90, 0.92, 0.91]).state == "not_verifiable"
    assert two_points([0.50, 0.51, 2.0], [0.90, 0.92, 4.0]).state == "violated"  # the server's clocks fell


def test_six_repeats_need_no_second_witness():
    assert verdict([0.50, 0.51, 0.52, 0.54, 0.55]).state != "violated"
    assert verdict([0.50, 0.51, 0.52, 0.53, 0.54, 0.56]).state == "violated"


def test_the_client_s_own_error_at_other_points_is_no_witness():
    assert two_points([0.50, 0.53, 0.56], [0.010, 0.0112, 0.0125]).state == "not_verifiable"


def drafted(accepted_counts, step_gaps):
    """A run with a drafter: 64 tokens a request, of which so many were accepted drafts; a step takes so long."""
    traces, acceptances = [], []
    for num_accepted, gap_s in zip(accepted_counts, step_gaps, strict=True):
        num_steps = 63 - num_accepted
        sizes = [1] + [
            1 + num_accepted // num_steps + (place < num_accepted % num_steps) for place in range(num_steps)
        ]
        traces.append(steady(len(sizes), gap_s=gap_s, usage=64, stated=sizes))
        acceptances.append(accepted(num_steps=num_steps, num_accepted_tokens=num_accepted))
    run = repeats(*traces, speculation="yes")
    return Run(
        header=run.header,
        measurements=tuple(
            request(each.trace, each.trial_id, started_at_s=each.started_at_s, acceptance=acceptance)
            for each, acceptance in zip(run.measurements, acceptances, strict=True)
        ),
        trials=run.trials,
    )


def test_with_a_drafter_the_step_is_what_may_drift():
    lucky = verdict_of(drafted([30, 36, 42], [0.02, 0.02, 0.02]))  # the time of a token fell by a third
    assert lucky.state == "verified"
    assert "time a step within 0 % over 3 repeats" in lucky.evidence
    slower = verdict_of(drafted([30, 36, 42], [0.020, 0.025, 0.030]))
    assert slower.state == "violated"
    assert {"tpot_s", "decode_tok_s", "step_s"} <= set(slower.doubts)


def test_without_steps_the_token_is_looked_at():
    run = repeats(*[steady(3, ttft_s=0.5, gap_s=gap_s) for gap_s in (0.020, 0.025, 0.030)])  # too few gaps for steps
    assert "time a token rose by 50 %" in verdict_of(run).evidence


@given(st.lists(st.floats(0.95, 1.04), min_size=3, max_size=8))
def test_noise_below_ten_per_cent_never_speaks(factors):
    assert verdict([0.5 * factor for factor in factors]).state == "verified"
