"""The memory of one device as a page: verdict, a labelled stacked bar with its ledger as a table, and the frontier of
context against concurrent requests.

It takes figures and words (`memory_view`), whoever made them. The table has every figure, so colour and picture carry
nothing alone.
"""

from __future__ import annotations

from deepdraft.report.chart import Axis, Chart, Level, Series
from deepdraft.report.html_chart import chart_figure
from deepdraft.report.html_memory_bar import gib, memory_bar
from deepdraft.report.html_part import bullets, section, table
from deepdraft.report.html_shell import html_document
from deepdraft.report.markup import Markup, element, foreign
from deepdraft.report.memory_view import MemoryPart, MemoryView
from deepdraft.report.page_data import chart_json
from deepdraft.units import tokens_text


def memory_page(view: MemoryView) -> str:
    """The whole page."""
    charts = frontier_charts(view)
    return html_document(
        f"Memory plan: {view.title}",
        element("a", "Skip to the plan", class_="skip", href="#report"),
        _headline(view),
        element("main", memory_section(view), frontier_section(view), _notes(view), id="report"),
        element("footer", element("p", "Made by deepdraft plan. This page loads nothing and sends nothing.")),
        data=chart_json(charts),
        more_styles=("memory.css",),
    )


def memory_section(view: MemoryView) -> Markup:
    """The bar and its ledger."""
    return section(
        "memory",
        "Memory of one device",
        element(
            "figure",
            element(
                "div", memory_bar(view), class_="frame", tabindex=0, role="region", aria_label="Picture of the memory"
            ),
            class_="memory",
        ),
        table("Ledger of one device's memory", _HEADS, _rows(view)),
    )


def frontier_section(view: MemoryView) -> Markup | str:
    """How long each of so many requests may be; nothing where nothing fits."""
    charts = frontier_charts(view)
    if not charts:
        return ""
    bound = bullets(
        [
            f"{row.num_requests:,} at once: {row.context_len:,} tokens each, by the {row.bound_by}"
            for row in view.frontier
        ]
    )
    return section("frontier", "Context against requests at once", chart_figure(charts[0]), bound)


def frontier_charts(view: MemoryView) -> tuple[Chart, ...]:
    """The frontier as a chart of the page's own kind."""
    if not view.frontier:
        return ()
    longest, most = view.frontier[0], view.frontier[-1]
    return (
        Chart(
            name="frontier",
            title="How long each request may be",
            summary=f"Tokens that each request may hold against requests at once: {longest.context_len:,} for "
            f"{longest.num_requests:,}, {most.context_len:,} for {most.num_requests:,}.",
            x=Axis(label="requests at once", kind="count", is_log=True),
            y=Axis(label="tokens of each request", kind="length"),
            series=(
                Series(
                    name="longest each",
                    role="points",
                    colour_index=0,
                    xs=tuple(float(row.num_requests) for row in view.frontier),
                    ys=tuple(float(row.context_len) for row in view.frontier),
                ),
            ),
            levels=(
                Level(y=float(view.max_context_len), label=f"context limit {tokens_text(view.max_context_len)}"),
            ),
        ),
    )


_HEADS = (
    "part",
    "GiB",
    "of the device",
    element("th", "known by", scope="col", class_="words"),
    element("th", "source", scope="col", class_="words"),
)


def _headline(view: MemoryView) -> Markup:
    cards = [
        element("div", element("dt", label), element("dd", figure, element("small", remark)))
        for label, figure, remark in view.facts
    ]
    return element(
        "header",
        element(
            "div",
            element("p", "Deepdraft memory plan", class_="kicker"),
            element("button", "Theme", type="button", id="theme", hidden=""),
            class_="bar",
        ),
        element("h1", foreign(view.title)),
        element("p", foreign(view.identity), class_="identity"),
        element("p", element("span", view.outcome, class_=f"outcome {view.tone}"), " ", foreign(view.summary)),
        element("dl", *cards, class_="cards"),
    )


def _notes(view: MemoryView) -> Markup | str:
    if not view.advice and not view.notes:
        return ""
    return section(
        "notes",
        "What to do, and what to know",
        bullets([foreign(line) for line in view.advice]),
        bullets([foreign(line) for line in view.notes]),
    )


def _rows(view: MemoryView) -> list[list[str]]:
    rows: list[list[str]] = []
    for index, group in enumerate(view.groups):
        key = element("span", class_=f"key {group.kind} colour-{index % 8}", aria_hidden="true")
        rows.append(
            [
                element("th", key, group.label, scope="row", class_="group"),
                element("td", gib(group.num_bytes), data_value=group.num_bytes),
                _share(group.num_bytes, view.device_bytes),
                element("td", "", class_="words"),
                element("td", _MEANING[group.kind], class_="words"),
            ]
        )
        rows += [_part_row(part, view.device_bytes) for part in group.parts]
    return rows


def _part_row(part: MemoryPart, device_bytes: int) -> list[str]:
    doubt = f" ± {gib(part.error_bytes)}" if part.error_bytes else ""
    return [
        element("th", foreign(part.name), scope="row", class_="entry"),
        element("td", gib(part.num_bytes), data_value=part.num_bytes),
        _share(part.num_bytes, device_bytes),
        element("td", f"{part.certainty}{doubt}", class_="words"),
        element("td", foreign(part.source), class_="words"),
    ]


_MEANING = {
    "part": "",
    "free": "free once the server is up and idle",
    "spike": "taken from what is free while a long prompt is prefilled",
}


def _share(num_bytes: int, device_bytes: int) -> str:
    percent = 100 * num_bytes / device_bytes if device_bytes else 0.0
    return f"{percent:.1f} %"
