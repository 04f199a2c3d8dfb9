"""The one self-contained HTML page: tables and words are in it as HTML, charts are drawn by its script.

Nothing is loaded: the Content-Security-Policy lets only the page's own script and style run, by their hashes, and
forbids every request. Without JavaScript the tables still have every figure.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib.resources import files

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
from deepdraft.report.markup import Markup, element, joined
from deepdraft.report.page_data import chart_json
from deepdraft.report.subject import Subject
from deepdraft.report.view import Views

_SCRIPTS = ("vendor/uplot.js", "draw.js", "page.js")
_STYLES = ("vendor/uplot.css", "page.css")


def html_page(subjects: Sequence[Subject], views: Views) -> str:
    """The page. `subjects` holds at least one run."""
    script, style = (_bundle(names) for names in (_SCRIPTS, _STYLES))
    charts = charts_of(subjects, views)
    alone = [chart for chart in charts if not chart.name.startswith("comparison-")]
    body = element(
        "body",
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
        element("script", Markup(chart_json(charts)), type="application/json", id="chart-data"),
        element("script", script),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script, style)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("meta", name="color-scheme", content="light dark"),
        element("meta", name="generator", content="deepdraft"),
        element("link", rel="icon", href="data:,"),
        element("title", title_of(subjects)),
        element("style", style),
    )
    return joined(Markup("<!DOCTYPE html>\n"), element("html", head, body, lang="en"), Markup("\n"))


def _bundle(names: Sequence[str]) -> Markup:
    page = files("deepdraft.report") / "page"
    text = "\n".join(page.joinpath(name).read_text(encoding="utf-8") for name in names)
    if "</script" in text.lower() or "</style" in text.lower():
        raise ValueError("a bundled file would end its own element")
    return Markup(text)


def _policy(script: str, style: str) -> str:
    return (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


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
