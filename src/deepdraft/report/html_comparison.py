"""The page's comparisons: each length's ratio and verdict, the crossover, and what was not compared and why."""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.report.chart_view import comparison_chart
from deepdraft.report.chart_words import FIGURE_LABELS
from deepdraft.report.html_chart import chart_figure
from deepdraft.report.html_part import bullets, section, table
from deepdraft.report.markup import Markup, element, foreign, joined
from deepdraft.report.number import NOTHING, rate_text
from deepdraft.report.subject import Subject
from deepdraft.report.view import ComparisonView, VerdictView, Views
from deepdraft.units import tokens_text


def comparison_section(subjects: Sequence[Subject], views: Views) -> Markup | str:
    """Nothing where nothing was compared."""
    if not views.comparisons:
        return ""
    return section("comparison", "Comparison", *(_comparison(subjects, view) for view in views.comparisons))


def _comparison(subjects: Sequence[Subject], view: ComparisonView) -> Markup:
    before, after = (subjects[index].name for index in (view.before_index, view.after_index))
    chart = comparison_chart(subjects, view)
    rows = [_row(one) for one in sorted(view.verdicts, key=lambda one: one.context_len)]
    heads = [
        "context",
        element("th", "figure", scope="col", class_="words"),
        "ratio",
        "interval",
        element("th", "verdict", scope="col", class_="words"),
    ]
    crossovers = [
        element(
            "p", f"Crossover ({FIGURE_LABELS.get(one.figure, one.figure)}): ", element("strong", foreign(one.text))
        )
        for one in view.crossovers
    ]
    return joined(
        element("h3", foreign(after), " against ", foreign(before)) if chart is None else "",
        chart_figure(chart, has_notes=False) if chart is not None else "",
        *crossovers,
        table(f"{after} against {before}", heads, rows) if rows else "",
        bullets([foreign(remark) for remark in view.remarks]),
    )


def _row(one: VerdictView) -> list[str]:
    streams = f" x {one.concurrency}" if one.concurrency != 1 else ""
    ratio, interval = NOTHING, NOTHING
    if one.ratio is not None:
        ratio = rate_text(one.ratio.value)
        if one.ratio.low is not None and one.ratio.high is not None:
            interval = f"{rate_text(one.ratio.low)} to {rate_text(one.ratio.high)}"
    return [
        tokens_text(one.context_len) + streams,
        element("td", FIGURE_LABELS.get(one.figure, one.figure), class_="words"),
        element("td", ratio, data_value=one.ratio.value if one.ratio is not None else None),
        interval,
        element("td", foreign(one.verdict), class_="words"),
    ]
