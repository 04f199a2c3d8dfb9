"""The page's sections about the runs themselves: headline, sweep, guards, environment, definitions."""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.metrics import FIGURE_KINDS
from deepdraft.report.environment import facts_of
from deepdraft.report.footnote import (
    footnotes_of,
    loads_of,
    missing_of,
    needles_of,
    remarks_of,
    sources_of,
    step_parts_of,
)
from deepdraft.report.grid import Cell, Head, grid_of
from deepdraft.report.html_part import bullets, marked, section, table, unseen
from deepdraft.report.markup import Markup, element, foreign, joined
from deepdraft.report.number import NOTHING, ms_text, rate_text
from deepdraft.report.row import Row, have_concurrency, median_of, median_seconds, point_name
from deepdraft.report.subject import Subject
from deepdraft.report.table import definitions_of, drafter_text
from deepdraft.report.view import Views
from deepdraft.units import tokens_text

_STATES = {"verified": ("✓", "verified"), "violated": ("!", "violated"), "not_verifiable": ("?", "not verifiable")}


def headline(subjects: Sequence[Subject], views: Views) -> Markup:
    """What was measured, and what it comes to at the longest context."""
    first = subjects[0]
    server = first.run.header.capabilities
    title = foreign(server.model or first.name) if len(subjects) == 1 else f"{len(subjects)} runs"
    return element(
        "header",
        element(
            "div",
            element("p", "Deepdraft report", class_="kicker"),
            element("button", "Theme", type="button", id="theme", hidden=""),
            class_="bar",
        ),
        element("h1", title),
        *(
            joined(
                element("p", *_identity(subject, len(subjects) > 1), class_="identity"),
                _cards(subject, len(subjects) > 1),
            )
            for subject in subjects
        ),
        bullets(views.remarks, "notes remarks"),
    )


def _identity(subject: Subject, is_named: bool) -> list[str]:
    header = subject.run.header
    server = header.capabilities
    engine = " ".join(part for part in (server.engine, server.version) if part)
    parts = [engine, *([server.model] if is_named and server.model else []), drafter_text(server)]
    if header.source is not None:
        parts.append(f"reported by {header.source.tool}")
    else:
        parts += [f"{header.spec.method} method", f"{header.spec.num_repeats} repeats", header.created_at[:10]]
    return [element("strong", foreign(subject.name), ": ") if is_named else "", foreign(", ".join(parts))]


def _cards(subject: Subject, is_named: bool) -> Markup | str:
    """The longest point of the main curve against the shortest."""
    if not subject.curves:
        return ""
    rows = subject.curves[0].rows
    short, long = rows[0], rows[-1]
    cards = [
        _card("longest context", tokens_text(long.point.context_len), "", f"{len(rows)} points"),
        _card(
            "TTFT there",
            median_seconds(long.point, "ttft_s"),
            long.doubts.mark("ttft_s"),
            f"{median_seconds(short.point, 'ttft_s')} at {tokens_text(short.point.context_len)}",
        ),
        _card(
            "decode there",
            _with_unit(rate_text(median_of(long.point, "decode_tok_s")), "tok/s"),
            long.doubts.mark("decode_tok_s"),
            f"{rate_text(median_of(short.point, 'decode_tok_s'))} at {tokens_text(short.point.context_len)}",
        ),
        _card(
            "time a token there",
            _with_unit(ms_text(median_of(long.point, "tpot_s")), "ms"),
            long.doubts.mark("tpot_s"),
            f"{ms_text(median_of(short.point, 'tpot_s'))} at {tokens_text(short.point.context_len)}",
        ),
    ]
    if "acceptance_len" in long.point.figures:
        cards.append(
            _card(
                "acceptance there",
                _with_unit(rate_text(median_of(long.point, "acceptance_len")), "tok/step"),
                long.doubts.mark("acceptance_len"),
                f"{rate_text(median_of(short.point, 'acceptance_len'))} at {tokens_text(short.point.context_len)}",
            )
        )
    label = f"At a glance: {subject.name}" if is_named else "At a glance"
    return element("dl", *cards, class_="cards", aria_label=label)


def _with_unit(text: str, unit: str) -> str:
    return text if text == NOTHING else f"{text} {unit}"


def _card(label: str, text: str, mark: str, beside: str) -> Markup:
    return element(
        "div",
        element("dt", label),
        element("dd", *marked(text, mark), element("small", beside) if not beside.startswith(NOTHING) else ""),
    )


def sweep_section(subjects: Sequence[Subject]) -> Markup:
    """The results table of each run with what must be read beside it."""
    return section("sweep", "Sweep", *(_sweep(subject, len(subjects) > 1) for subject in subjects))


def _sweep(subject: Subject, is_named: bool) -> Markup:
    measured = [row for row in subject.rows if row.point.num_samples]
    grid = grid_of(subject.rows)
    lines = [*missing_of(subject.run, subject.rows), *remarks_of(subject.run, subject.rows)]
    lines += [*loads_of(subject.run, measured), *needles_of(subject.rows), *sources_of(measured)]
    lines += step_parts_of(measured)
    caption = f"Results of {subject.name}"
    rows = [
        [
            _cell(head, cell, is_first=place == 0)
            for place, (head, cell) in enumerate(zip(grid.heads, row, strict=True))
        ]
        for row in grid.cells
    ]
    return joined(
        element("h3", foreign(subject.name)) if is_named else "",
        table(caption, [_head(head) for head in grid.heads], rows) if grid.cells else "",
        element(
            "p",
            "Median of n samples. ",
            element("b", "!"),
            " in doubt: a guard was violated. ",
            element("b", "?"),
            " not verified. Guards below say why.",
            class_="legend",
        )
        if any(cell.mark for row in grid.cells for cell in row)
        else "",
        bullets([foreign(line) for line in lines]),
    )


def _head(head: Head) -> Markup:
    unit = element("small", f" {head.unit}") if head.unit else ""
    return element("th", head.text, unit, scope="col", title=head.definition or None)


def _cell(head: Head, cell: Cell, *, is_first: bool) -> Markup:
    title = None
    if cell.low is not None and cell.high is not None and cell.low != cell.high and head.figure != "context_len":
        title = f"samples from {cell.low:.6g} to {cell.high:.6g} ({head.figure})"
    if cell.doubted_by:
        title = (f"{title}; " if title else "") + f"see {', '.join(cell.doubted_by)}"
    return element(
        "th" if is_first else "td",
        *marked(cell.text, cell.mark),
        scope="row" if is_first else None,
        data_figure=head.figure or None,
        data_value=cell.value,
        title=title,
    )


def guards_section(subjects: Sequence[Subject]) -> Markup | str:
    """Each guard at each point, then the evidence."""
    shown = [_guards(subject, len(subjects) > 1) for subject in subjects if subject.rows]
    intro = element("p", "Each guard looks at one known way in which a figure can be wrong, at each point.")
    return section("guards", "Guards", intro, *shown) if shown else ""


def _guards(subject: Subject, is_named: bool) -> Markup:
    measured = [row for row in subject.rows if row.point.num_samples]
    names = list(dict.fromkeys(guard.name for row in measured for guard in row.doubts.guards))
    has_concurrency = have_concurrency(measured)
    heads = ["guard", *(point_name(row.point, has_concurrency) for row in measured)]
    rows = [[name.replace("_", " "), *(_state(row, name) for row in measured)] for name in names]
    return joined(
        element("h3", foreign(subject.name)) if is_named else "",
        table(f"Guards of {subject.name}", heads, rows) if rows else "",
        bullets([foreign(line) for line in footnotes_of(measured)]),
    )


def _state(row: Row, name: str) -> Markup:
    guard = next((guard for guard in row.doubts.guards if guard.name == name), None)
    if guard is None:
        return element("td", "-")
    symbol, word = _STATES[guard.state]
    return element(
        "td",
        element("span", symbol, aria_hidden="true", class_=f"state {guard.state}"),
        unseen(word),
        title=f"{word}: {guard.evidence}",
        data_state=guard.state,
    )


def environment_section(subjects: Sequence[Subject]) -> Markup:
    """What each run was."""
    return section("environment", "Environment", *(_environment(subject, len(subjects) > 1) for subject in subjects))


def _environment(subject: Subject, is_named: bool) -> Markup:
    facts = facts_of(subject.run)
    return joined(
        element("h3", foreign(subject.name)) if is_named else "",
        element(
            "dl",
            *(joined(element("dt", foreign(fact.label)), element("dd", foreign(fact.text))) for fact in facts),
            class_="facts",
        ),
    )


def definitions_section(subjects: Sequence[Subject]) -> Markup:
    """How each figure on the page is defined."""
    used = {name for subject in subjects for row in subject.rows for name in row.point.figures}
    kinds = [kind for kind in FIGURE_KINDS if kind.name in used]
    texts = list(dict.fromkeys(definitions_of(subject.run) for subject in subjects))
    return section(
        "definitions",
        "Definitions",
        *(element("p", text) for text in texts),
        element(
            "dl",
            *(
                joined(element("dt", element("code", kind.name), f" ({kind.unit})"), element("dd", kind.definition))
                for kind in kinds
            ),
            class_="facts",
        ),
        element(
            "p",
            "On charts, bars at a point go from the smallest to the largest sample (or as far as the source's "
            "rounding goes); hollow points are in doubt; the band about a fitted law is its 95 % interval. A "
            "floor is the least that the device allows, not a forecast.",
        ),
    )
