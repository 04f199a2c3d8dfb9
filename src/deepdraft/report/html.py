"""The one self-contained HTML page: tables and words are in it as HTML, charts are drawn by its script.

Nothing is loaded (`html_shell`). Without JavaScript the tables still have every figure.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.report.charts import charts_of
from deepdraft.report.document import title_of
from deepdraft.report.html_chart import chart_figure
from deepdraft.report.html_comparison import comparison_section
from deepdraft.report.html_finding import findings_section
from deepdraft.report.html_part import section
from deepdraft.report.html_run import (
    definitions_section,
    environment_section,
    guards_section,
    headline,
    sweep_section,
)
from deepdraft.report.html_shell import html_document
from deepdraft.report.markup import Markup, element
from deepdraft.report.page_data import chart_json
from deepdraft.report.subject import Subject
from deepdraft.report.view import Views


def html_page(subjects: Sequence[Subject], views: Views) -> str:
    """The page. `subjects` holds at least one run."""
    charts = charts_of(subjects, views)
    alone = [chart for chart in charts if not chart.name.startswith("comparison-")]
    return html_document(
        title_of(subjects),
        element("a", "Skip to the report", class_="skip", href="#report"),
        headline(subjects, views),
        element(
            "main",
            findings_section(subjects, views),
            sweep_section(subjects),
            section("charts", "Charts", *(chart_figure(chart) for chart in alone)) if alone else "",
            comparison_section(subjects, views),
            guards_section(subjects),
            environment_section(subjects),
            definitions_section(subjects),
            id="report",
        ),
        _footer(subjects),
        data=chart_json(charts),
    )


def _footer(subjects: Sequence[Subject]) -> Markup:
    version = subjects[0].run.header.deepdraft_version
    return element(
        "footer",
        element(
            "p",
            f"Made by deepdraft report from results of deepdraft {version}. This page loads nothing and sends "
            "nothing. Charts: uPlot (MIT licence).",
        ),
    )
