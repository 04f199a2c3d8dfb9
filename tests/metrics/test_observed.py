from dataclasses import replace

import pytest
from trace_builder import header, repeats, request, steady, trial

from deepdraft.metrics import points_of
from deepdraft.metrics.observed import observed_of, repeats_of
from deepdraft.records import Reported, ReportedFigure, Run, Source


def reported(**figures: ReportedFigure) -> Run:
    line = Reported(context_len=185_000, figures=figures)
    return Run(header=replace(header(), source=Source(tool="a table")), reported=(line,))


def test_each_repeat_is_a_value_in_order_of_time() -> None:
    run = repeats(*(steady(8, gap_s=gap_s) for gap_s in (0.03, 0.01, 0.02)))
    (observed,) = observed_of(points_of(run), "tpot_s")
    assert observed.x == 1_000
    assert observed.values == pytest.approx((0.03, 0.01, 0.02))
    assert observed.rounding is None


def test_requests_of_one_trial_are_one_repeat() -> None:
    answers = [steady(8, gap_s=gap_s) for gap_s in (0.01, 0.02, 0.06)]
    run = Run(
        header=header(spec={"concurrencies": (3,)}),
        measurements=tuple(request(one, "t", request_index=index) for index, one in enumerate(answers)),
        trials=(trial("t", concurrency=3),),
    )
    (observed,) = observed_of(points_of(run), "tpot_s")
    assert observed.values == pytest.approx((0.02,))
    assert observed.num_behind == 3


def test_repeats_have_their_index() -> None:
    run = repeats(*(steady(8, gap_s=gap_s) for gap_s in (0.03, 0.01)))
    assert repeats_of(points_of(run)[0], "tpot_s") == pytest.approx({0: 0.03, 1: 0.01})


def test_a_printed_rate_gives_the_time_its_exact_limits() -> None:
    run = reported(decode_tok_s=ReportedFigure(values=(0.7,), half_width=0.05))
    (observed,) = observed_of(points_of(run), "tpot_s")
    assert observed.middle == pytest.approx(1 / 0.7)
    assert observed.rounding == pytest.approx((1 / 0.75, 1 / 0.65))


def test_a_printed_figure_is_taken_as_printed() -> None:
    run = reported(ttft_s=ReportedFigure(values=(384.0,), half_width=3.0, num_samples=5))
    (observed,) = observed_of(points_of(run), "ttft_s")
    assert (observed.values, observed.half_width, observed.num_behind) == ((384.0,), 3.0, 5)


def test_what_follows_from_another_figure_keeps_its_rounding() -> None:
    run = reported(ttft_s=ReportedFigure(values=(370.0,), half_width=3.0))
    (observed,) = observed_of(points_of(run), "prefill_tok_s")
    assert observed.middle == pytest.approx(500)
    assert observed.half_width is not None


def test_points_without_the_figure_are_left_out() -> None:
    assert observed_of(points_of(reported(ttft_s=ReportedFigure(values=(1.0,)))), "tpot_s") == ()


def test_what_a_trial_tells_as_a_whole_is_its_brief() -> None:
    run = repeats(steady(8), steady(8), steady(8))
    (observed,) = observed_of(points_of(run), "output_tok_s")
    assert len(observed.values) == 3
