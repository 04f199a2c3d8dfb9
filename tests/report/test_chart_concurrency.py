import dataclasses

import pytest
from report_builder import sweep
from trace_builder import header, request, steady, trial

from deepdraft.records import Reported, ReportedFigure, Run
from deepdraft.report.chart_concurrency import throughput_chart
from deepdraft.report.charts import charts_of
from deepdraft.report.latex_chart import chart_picture
from deepdraft.report.plot import plot_bytes
from deepdraft.report.subject import Subject
from deepdraft.report.view import Views

NUM_TOKENS = 50


def loaded(*, lens=(1_000, 8_000), concurrencies=(1, 4, 16), num_repeats=2):
    """All requests of a trial start at once and each emits a token every 10 ms, plus 1 ms for each other request."""
    measurements, trials = [], []
    for repeat in range(num_repeats):
        for length in lens:
            for concurrency in concurrencies:
                trial_id = f"len{length}-c{concurrency}-r{repeat}"
                at_s = 100.0 * len(trials)
                gap_s = (0.010 + 0.001 * (concurrency - 1)) * (1 + 0.1 * repeat)
                one = steady(NUM_TOKENS, ttft_s=length * 1e-4, gap_s=gap_s, prompt=length)
                measurements += [
                    request(
                        one,
                        trial_id,
                        asked=length,
                        max_tokens=NUM_TOKENS,
                        started_at_s=at_s,
                        request_index=index,
                    )
                    for index in range(concurrency)
                ]
                trials.append(
                    trial(
                        trial_id,
                        context_len=length,
                        concurrency=concurrency,
                        repeat_index=repeat,
                        started_at_s=at_s,
                    )
                )
    return Run(header=header(), measurements=tuple(measurements), trials=tuple(trials))


def reported(context_len, concurrency, output_tok_s, workload=None):
    figures = {"output_tok_s": ReportedFigure(values=(output_tok_s,))}
    return Reported(context_len=context_len, concurrency=concurrency, workload=workload, figures=figures)


def test_a_curve_for_each_context_length():
    chart = throughput_chart([Subject(name="plain", run=loaded())])
    assert chart is not None
    assert [one.name for one in chart.series] == ["1.0k", "8.0k"]
    assert [one.xs for one in chart.series] == [(1.0, 4.0, 16.0)] * 2
    assert len({one.colour_index for one in chart.series}) == 2


def test_throughput_is_all_requests_tokens_over_the_time_they_took():
    chart = throughput_chart([Subject(name="plain", run=loaded(lens=(1_000,), num_repeats=1))])
    (curve,) = chart.series
    expected = [count * NUM_TOKENS / (0.1 + 49 * (0.010 + 0.001 * (count - 1))) for count in (1, 4, 16)]
    assert curve.ys == pytest.approx(expected, rel=1e-2)
    assert curve.lows is None


def test_bars_go_from_the_smallest_to_the_largest_trial():
    (curve,) = throughput_chart([Subject(name="plain", run=loaded(lens=(1_000,)))]).series
    assert all(low < y < high for low, y, high in zip(curve.lows, curve.ys, curve.highs, strict=True))


def test_runs_are_named_where_there_are_several():
    subjects = [Subject(name=name, run=loaded(lens=(1_000,))) for name in ("never", "auto")]
    chart = throughput_chart(subjects)
    assert [one.name for one in chart.series] == ["never, 1.0k", "auto, 1.0k"]
    assert [one.colour_index for one in chart.series] == [0, 1]


def test_a_length_at_one_concurrency_makes_no_curve():
    assert throughput_chart([Subject(name="plain", run=sweep())]) is None
    mixed = loaded(lens=(1_000,))
    alone = loaded(lens=(8_000,), concurrencies=(1,))
    both = dataclasses.replace(
        mixed, measurements=mixed.measurements + alone.measurements, trials=mixed.trials + alone.trials
    )
    assert [one.name for one in throughput_chart([Subject(name="plain", run=both)]).series] == ["1.0k"]


def test_unlike_workloads_are_not_joined():
    points = [
        reported(1_000, concurrency, 100.0 * concurrency * factor, workload)
        for workload, factor in (("code", 2), ("prose", 1))
        for concurrency in (4, 1)
    ]
    run = Run(header=header(), measurements=(), trials=(), reported=tuple(points))
    chart = throughput_chart([Subject(name="plain", run=run)])
    assert [(one.name, one.xs, one.ys) for one in chart.series] == [
        ("1.0k, text: code", (1.0, 4.0), (200.0, 800.0)),
        ("1.0k, text: prose", (1.0, 4.0), (100.0, 400.0)),
    ]


def test_it_stands_in_the_report_behind_the_charts_of_time():
    charts = charts_of([Subject(name="plain", run=loaded())], Views())
    assert [chart.name for chart in charts] == ["ttft", "tpot", "throughput"]
    assert plot_bytes(charts, "svg", "title").startswith(b"<?xml")


@pytest.mark.parametrize(("most", "has_every_tick"), [(16, True), (256, False)])
def test_latex_names_every_concurrency_only_where_there_are_few(most, has_every_tick):
    chart = throughput_chart([Subject(name="plain", run=loaded(lens=(1_000,), concurrencies=(1, most)))])
    assert ("xtick distance=1" in chart_picture(chart)) is has_every_tick
