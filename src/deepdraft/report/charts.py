"""The charts of a report, drawn up from runs and views; a chart without anything to show is left out."""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.report.chart import Axis, Chart
from deepdraft.report.chart_concurrency import throughput_chart
from deepdraft.report.chart_context import context_chart
from deepdraft.report.chart_speculation import acceptance_chart, depth_chart
from deepdraft.report.chart_view import attribution_chart, comparison_chart
from deepdraft.report.subject import Subject
from deepdraft.report.view import Views


def charts_of(subjects: Sequence[Subject], views: Views) -> tuple[Chart, ...]:
    """Every chart that has something to show, in the order of a report."""
    found = [
        context_chart(
            subjects,
            views,
            "ttft_s",
            name="ttft",
            title="Time to first token",
            y=Axis(label="TTFT", kind="seconds", is_log=True),
        ),
        context_chart(
            subjects,
            views,
            "tpot_s",
            name="tpot",
            title="Time a token while decoding",
            y=Axis(label="milliseconds a token", kind="ms", is_log=True),
        ),
        throughput_chart(subjects),
        acceptance_chart(subjects),
        depth_chart(subjects),
        *(attribution_chart(subjects, one) for one in views.attributions),
        *(comparison_chart(subjects, one) for one in views.comparisons),
    ]
    return tuple(chart for chart in found if chart is not None)
