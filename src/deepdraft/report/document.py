"""A report as blocks of text, tables and drawings, before a format sets them: Markdown, LaTeX, plain text.

The HTML page is built apart, since it can do more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepdraft.report.chart import Chart, at_place
from deepdraft.report.chart_words import FIGURE_LABELS, about
from deepdraft.report.charts import charts_of
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
from deepdraft.report.grid import grid_of
from deepdraft.report.number import NOTHING, ms_text, rate_text
from deepdraft.report.subject import Subject
from deepdraft.report.table import definitions_of
from deepdraft.report.view import AttributionView, ComparisonView, EstimateView, FindingView, VerdictView, Views
from deepdraft.units import tokens_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """Level 1 stands once, at the top."""

    level: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """Running text."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bullets:
    """A list of sentences."""

    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """rows[R][C]; the first column is set left, the others right, the last left where it holds words."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    caption: str
    is_last_words: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Drawing:
    """A chart: drawn where the format can, else its table."""

    chart: Chart


Block = Heading | Paragraph | Bullets | Table | Drawing


def document(subjects: Sequence[Subject], views: Views) -> tuple[Block, ...]:
    """The whole report."""
    blocks: list[Block] = [Heading(level=1, text=title_of(subjects))]
    blocks += findings_blocks(subjects, views)
    blocks += [block for subject in subjects for block in _sweep(subject)]
    drawings = [Drawing(chart=chart) for chart in charts_of(subjects, views)]
    if drawings:
        blocks += [Heading(level=2, text="Charts"), *drawings]
    blocks += closing_blocks(subjects, views)
    for subject in subjects:
        name = f": {subject.name}" if len(subjects) > 1 else ""
        lines = tuple(f"{fact.label}: {fact.text}" for fact in facts_of(subject.run))
        blocks += [Heading(level=2, text=f"Environment{name}"), Bullets(lines=lines)]
    texts = dict.fromkeys(definitions_of(subject.run) for subject in subjects)
    blocks += [Heading(level=2, text="Definitions"), *(Paragraph(text=text) for text in texts)]
    return tuple(blocks)


def findings_blocks(subjects: Sequence[Subject], views: Views) -> list[Block]:
    """The findings; nothing where no diagnosis was made."""
    if not views.findings:
        none = Paragraph(text="No rule found anything to say about these results.")
        return [Heading(level=2, text="Findings"), none] if views.is_explained else []
    blocks: list[Block] = [Heading(level=2, text="Findings")]
    for finding in views.findings:
        blocks += _finding(subjects, finding)
    return blocks


def closing_blocks(subjects: Sequence[Subject], views: Views) -> list[Block]:
    """Comparison, attribution and what could not be done."""
    blocks: list[Block] = []
    for comparison in views.comparisons:
        blocks += _comparison(subjects, comparison)
    for attribution in views.attributions:
        blocks += _attribution(subjects, attribution)
    if views.remarks:
        blocks += [Heading(level=2, text="Left out"), Bullets(lines=views.remarks)]
    return blocks


def law_lines(subjects: Sequence[Subject], views: Views) -> tuple[str, ...]:
    """Each fitted law with what speaks against it, and why others could not be fitted."""
    lines: list[str] = []
    for law in views.laws:
        lines += [about(subjects, law.run_index, text) for text in (law.formula, *law.doubts)]
    lines += [about(subjects, one.run_index, f"no law: {one.reason}") for one in views.no_laws]
    return tuple(lines)


def chart_table(chart: Chart) -> Table:
    """The figures of a chart."""
    shown = (*chart.tabled(), *(one for one in chart.series if one.role in ("law", "floor")))
    rows = []
    for place in chart.places():
        cells = [chart.x.text(place)]
        for one in shown:
            index = at_place(one, place)
            mark = one.marks[index] if index is not None and one.marks is not None else ""
            cells.append(NOTHING if index is None else chart.y.text(one.ys[index]) + mark)
        rows.append(tuple(cells))
    return Table(
        heads=(chart.x.label, *(one.name for one in shown)),
        rows=tuple(rows),
        caption=f"{chart.title}: {chart.y.label}",
    )


def title_of(subjects: Sequence[Subject]) -> str:
    """One line: what is reported on."""
    if len(subjects) > 1:
        return f"Deepdraft report: {', '.join(subject.name for subject in subjects)}"
    server = subjects[0].run.header.capabilities
    return f"Deepdraft report: {server.model or subjects[0].name} on {server.engine}"


def _sweep(subject: Subject) -> list[Block]:
    grid = grid_of(subject.rows)
    measured = [row for row in subject.rows if row.point.num_samples]
    blocks: list[Block] = [Heading(level=2, text=f"Sweep: {subject.name}")]
    if grid.cells:
        heads = tuple(f"{head.text} ({head.unit})" if head.unit else head.text for head in grid.heads)
        rows = tuple(tuple(cell.text + cell.mark for cell in row) for row in grid.cells)
        blocks.append(Table(heads=heads, rows=rows, caption=f"Results of {subject.name}"))
    lines = (
        *footnotes_of(measured),
        *sources_of(measured),
        *step_parts_of(measured),
        *loads_of(subject.run, measured),
        *needles_of(subject.rows),
        *missing_of(subject.run, subject.rows),
        *remarks_of(subject.run, subject.rows),
    )
    return [*blocks, Bullets(lines=lines)] if lines else blocks


def _finding(subjects: Sequence[Subject], finding: FindingView) -> list[Block]:
    where = ""
    if finding.run_index is not None and len(subjects) > 1:
        where = f", {subjects[finding.run_index].name}"
    title = f"{finding.code} {finding.name.replace('_', ' ')} ({finding.severity}{where})"
    blocks: list[Block] = [Heading(level=3, text=title), Paragraph(text=finding.summary)]
    lines = [f"{one.name}: {one.value}" + (f" ({one.source})" if one.source else "") for one in finding.evidence]
    for one in finding.hypotheses:
        lines.append(f"Possible cause: {one.name} (support: {one.support}). {one.why}")
        lines += [f"It predicts: {one.prediction}"] if one.prediction else []
        lines += [f"The experiment that decides: {one.experiment}"] if one.experiment else []
    if finding.remedy:
        lines.append(f"What to do: {finding.remedy}")
    return [*blocks, Bullets(lines=tuple(lines))] if lines else blocks


def _comparison(subjects: Sequence[Subject], view: ComparisonView) -> list[Block]:
    before, after = subjects[view.before_index].name, subjects[view.after_index].name
    rows = tuple(
        (_place(one), FIGURE_LABELS.get(one.figure, one.figure), *_ratio(one.ratio), one.verdict)
        for one in sorted(view.verdicts, key=lambda one: one.context_len)
    )
    heads = ("context", "figure", "ratio", "interval", "verdict")
    caption = f"{after} / {before}"
    lines = (
        *(f"crossover, {FIGURE_LABELS.get(one.figure, one.figure)}: {one.text}" for one in view.crossovers),
        *view.remarks,
    )
    return [
        Heading(level=2, text=f"{after} against {before}"),
        *([Table(heads=heads, rows=rows, caption=caption, is_last_words=True)] if rows else []),
        *([Bullets(lines=lines)] if lines else []),
    ]


def _place(verdict: VerdictView) -> str:
    streams = f" x {verdict.concurrency}" if verdict.concurrency != 1 else ""
    return tokens_text(verdict.context_len) + streams


def _ratio(ratio: EstimateView | None) -> tuple[str, str]:
    if ratio is None:
        return NOTHING, NOTHING
    if ratio.low is None or ratio.high is None:
        return rate_text(ratio.value), NOTHING
    return rate_text(ratio.value), f"{rate_text(ratio.low)} to {rate_text(ratio.high)}"


def _attribution(subjects: Sequence[Subject], view: AttributionView) -> list[Block]:
    name = f": {subjects[view.run_index].name}" if len(subjects) > 1 else ""
    lines = []
    for bar in sorted(view.bars, key=lambda bar: bar.context_len):
        parts = [f"{part.name} {ms_text(part.seconds)}" for part in bar.parts]
        whole = "whole not known" if bar.measured_s is None else f"{ms_text(bar.measured_s)} ms"
        if bar.residual_s is not None:
            parts.append(f"not explained {ms_text(bar.residual_s)}")
        lines.append(f"{tokens_text(bar.context_len)}: {whole} = {' + '.join(parts)}")
    return [
        Heading(level=2, text=f"Where the time of a {view.per} goes{name}"),
        Bullets(lines=(*lines, *view.remarks)),
    ]
