"""A chart's place on the page: title, room for the drawing, notes, and the same figures as a table."""

from __future__ import annotations

from deepdraft.report.chart import Chart, Series, at_place
from deepdraft.report.html_part import bullets, marked, table
from deepdraft.report.markup import Markup, element, foreign


def chart_figure(chart: Chart, *, has_notes: bool = True) -> Markup:
    """The figure element; the script finds it by its name. Without notes: they stand elsewhere."""
    title = f"chart-{chart.name}-title"
    return element(
        "figure",
        element("figcaption", element("h3", foreign(chart.title), id=title)),
        element("div", class_="controls", hidden=""),
        element(
            "div",
            class_="plot",
            tabindex=0,
            role="group",
            aria_roledescription="chart",
            aria_label=f"{chart.summary} Arrow keys move along the chart; the table below has every figure.",
        ),
        element("p", class_="reading", role="status", aria_live="polite"),
        bullets([foreign(text) for text in (*(one.label for one in chart.crossings), *chart.notes)])
        if has_notes
        else "",
        element("details", element("summary", "Table of these figures"), chart_table(chart), open=""),
        class_="chart",
        data_chart=chart.name,
        aria_labelledby=title,
    )


def chart_table(chart: Chart) -> Markup:
    """A row a place on the x axis, a column a series."""
    shown = chart.tabled()
    curves = [one for one in chart.series if one.role in ("law", "floor")]
    heads = [chart.x.label, *(foreign(one.name) for one in (*shown, *curves))]
    rows = [
        [
            element("th", chart.x.text(place), scope="row", data_value=place),
            *(_cell(chart, one, place) for one in (*shown, *curves)),
        ]
        for place in chart.places()
    ]
    return table(f"{chart.title}: {chart.y.label}", heads, rows)


def _cell(chart: Chart, series: Series, place: float) -> Markup:
    index = at_place(series, place)
    if index is None:
        return element("td", "-")
    mark = series.marks[index] if series.marks is not None else ""
    low = series.lows[index] if series.lows is not None else None
    high = series.highs[index] if series.highs is not None else None
    span: Markup | str = ""
    if low is not None and high is not None and chart.y.text(low) != chart.y.text(high):
        span = element("small", f" {chart.y.text(low)} to {chart.y.text(high)}")
    return element("td", *marked(chart.y.text(series.ys[index]), mark), span, data_value=series.ys[index])
