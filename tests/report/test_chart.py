import pytest
from report_builder import all_views, reference, sweep, two

from deepdraft.report.chart import Axis, at_place
from deepdraft.report.charts import charts_of
from deepdraft.report.subject import Subject
from deepdraft.report.view import AttributionView, BarView, PartView, Views


def named(charts):
    return {chart.name: chart for chart in charts}


def roles(chart):
    return [(one.name, one.role) for one in chart.series]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("length", 185_000, "185k"),
        ("count", 3.0, "3"),
        ("seconds", 384.0, "6.4 min"),
        ("ms", 0.0084, "8.40 ms"),
        ("number", 2.5, "2.50"),
        ("share", 0.42, "42 %"),
        ("ms", None, "-"),
    ],
)
def test_values_are_printed_in_the_axis_own_unit(kind, value, text):
    assert Axis(label="x", kind=kind).text(value) == text


def test_an_axis_names_its_unit_once():
    assert Axis(label="TTFT", kind="seconds").titled == "TTFT (s)"
    assert Axis(label="milliseconds a token", kind="ms").titled == "milliseconds a token"


def test_a_run_without_a_drafter_has_the_two_charts_of_time():
    charts = named(charts_of([Subject(name="plain", run=sweep())], Views()))
    assert list(charts) == ["ttft", "tpot"]
    (points,) = charts["tpot"].series
    assert points.xs == (1_000.0, 4_000.0, 16_000.0, 64_000.0)
    assert points.ys == pytest.approx([0.010 + 2e-7 * x for x in points.xs])
    assert points.lows is not None and points.highs is not None
    assert all(low < y < high for low, y, high in zip(points.lows, points.ys, points.highs, strict=True))


def test_everything_handed_in_is_drawn():
    charts = named(charts_of(two(), all_views()))
    assert list(charts) == ["ttft", "tpot", "acceptance", "depth", "attribution-0-step", "comparison-0-1"]
    assert roles(charts["tpot"]) == [
        ("plain", "points"),
        ("plain, fitted law", "law"),
        ("plain, device floor", "floor"),
        ("drafter", "points"),
    ]
    assert [one.name for one in charts["acceptance"].series] == ["drafter, acceptance length"]
    assert charts["acceptance"].series[0].ys == pytest.approx([4, 3, 2, 1])
    assert charts["comparison-0-1"].crossings[0].x == 16_000
    assert [level.y for level in charts["comparison-0-1"].levels] == [1.0]


def test_a_law_has_the_colour_of_its_points():
    chart = named(charts_of(two(), all_views()))["tpot"]
    plain, law, floor, drafter = chart.series
    assert plain.colour_index == law.colour_index == floor.colour_index != drafter.colour_index


def test_the_parts_and_the_residual_sum_to_the_whole():
    chart = named(charts_of(two(), all_views()))["attribution-0-step"]
    assert chart.is_stack
    for place in chart.places():
        indexes = [(one, at_place(one, place)) for one in chart.series]
        whole = sum(one.ys[index] for one, index in indexes if index is not None)
        assert whole == pytest.approx(0.010 + 2e-7 * place)


def test_parts_beyond_the_whole_are_said():
    bar = BarView(context_len=1e3, measured_s=0.01, parts=(PartView(name="KV", seconds=0.02),), residual_s=-0.01)
    views = Views(attributions=(AttributionView(run_index=0, per="token", bars=(bar,)),))
    chart = named(charts_of([Subject(name="plain", run=sweep())], views))["attribution-0-token"]
    assert chart.notes[0] == "The parts exceed what was measured at 1.0k."


def test_a_whole_that_is_not_known_has_no_residual():
    bar = BarView(context_len=1e3, measured_s=None, parts=(PartView(name="KV", seconds=0.02),), residual_s=None)
    views = Views(attributions=(AttributionView(run_index=0, per="answer", bars=(bar,)),))
    chart = named(charts_of([Subject(name="plain", run=sweep())], views))["attribution-0-answer"]
    assert [one.name for one in chart.series] == ["KV"]


def test_points_of_another_workload_are_another_series():
    charts = named(charts_of([reference()], Views()))
    assert [one.name for one in charts["tpot"].series] == ["text: synthetic, repetitive"]
    assert [one.name for one in charts["acceptance"].series] == ["text: not said, acceptance length"]
    (points,) = charts["tpot"].series
    assert points.lows is not None and points.highs is not None
    assert points.lows[-1] < 1 / 0.7 < points.highs[-1]  # 0.7 tok/s was rounded


def test_a_chart_says_in_words_what_it_shows():
    chart = named(charts_of([reference()], Views()))["ttft"]
    assert "460 ms at 1.4k, 6.4 min at 185k" in chart.summary


def test_a_run_without_figures_has_no_chart():
    assert charts_of([Subject(name="none", run=sweep(lens=()))], Views()) == ()
