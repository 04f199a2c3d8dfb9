import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import header, repeats, request, steady, trial

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
    assert report.evidence == "TTFT within 3.9 % over 3 repeats; time a token within 0 % over 3 repeats"


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
    assert verdict([0.0100, 0.0130, 0.0160]).state == "violated"


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


@given(st.lists(st.floats(0.95, 1.04), min_size=3, max_size=8))
def test_noise_below_ten_per_cent_never_speaks(factors):
    assert verdict([0.5 * factor for factor in factors]).state == "verified"
