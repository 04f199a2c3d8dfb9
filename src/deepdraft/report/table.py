"""The results table as plain text, at most 80 columns wide, without colour.

A figure in doubt carries a mark, and each mark has a footnote that names the guard and its evidence. Points that gave
no figures are listed with their reasons, never left out. Control characters of a results file reach no terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass

from deepdraft.metrics import Point
from deepdraft.records import Capabilities, Run, Source
from deepdraft.report.doubt import point_doubts
from deepdraft.report.footnote import (
    footnotes_of,
    loads_of,
    missing_of,
    needles_of,
    remarks_of,
    sources_of,
    step_parts_of,
)
from deepdraft.report.markup import visible
from deepdraft.report.number import NOTHING, ms_text, percent_text, rate_text
from deepdraft.report.row import Row, have_concurrency, median_of, median_seconds, rows_of, spread_frac
from deepdraft.units import tokens_text

_BY_METHOD = {
    "streaming": "TTFT: request sent -> first token (answer, reasoning or tool call). "
    "prefill: uncached prompt tokens / TTFT. "
    "ms/token: (last - first token arrival) / tokens after the first arrival; decode: its inverse. ",
    "two-point": "Two requests a sample, for 1 and for 1 + M tokens. TTFT: sent -> the first one's token. "
    "prefill: uncached prompt tokens / TTFT. "
    "ms/token: (last token of the second - token of the first) / M; decode: its inverse. ",
}
_BY_SOURCE = (
    "Figures as their source gives them, under our names; where it prints only one of decode tok/s and ms/token, or "
    "of TTFT and prefill tok/s, the other is computed. ms/token is not ms/step. n: values behind a figure."
)
_BY_ALL = (
    "tok/step: tokens a decode step commits. ms/step: one decode or verify step, which is not ms/token. "
    "accept: tokens a verify step commits, bonus included. Each figure: median of n requests, one vote each. "
    "spread: (largest - smallest) / median over the n, of TTFT or ms/token, whichever is larger."
)


@dataclass(frozen=True, slots=True)
class _Column:
    head: tuple[str, str]
    width: int
    text: Callable[[Point], str]
    figure: str | None = None
    """Whose doubts mark the cell; None for what carries no mark."""

    def lines(self, rows: list[Row]) -> list[str]:
        """Both lines of the head, then a cell a row, flush right; a figure's last place is kept for its mark."""
        lines = [text.rjust(self.width) for text in self.head]
        for row in rows:
            mark = (row.doubts.mark(self.figure) or " ") if self.figure is not None else ""
            text = self.text(row.point)
            lines.append((text + (" " if text == NOTHING and mark else mark)).rjust(self.width))
        return lines


def _figure_column(name: str, head: tuple[str, str], width: int, *, is_time: bool = False) -> _Column:
    write = ms_text if is_time else rate_text
    return _Column(head, width, lambda point: write(median_of(point, name)), name)


_CONTEXT = _Column(("", "ctx "), 6, lambda point: tokens_text(point.context_len), "context_len")
_CONCURRENCY = _Column(("", "c"), 3, lambda point: str(point.concurrency))
_COLUMNS = (
    _Column(("", "TTFT "), 8, lambda point: median_seconds(point, "ttft_s"), "ttft_s"),
    _figure_column("prefill_tok_s", ("prefill", "tok/s "), 7),
    _figure_column("decode_tok_s", ("decode", "tok/s "), 7),
    _figure_column("tpot_s", ("ms/ ", "token "), 7, is_time=True),
    _figure_column("tokens_per_step", ("tok/ ", "step "), 6),
    _figure_column("step_s", ("ms/ ", "step "), 7, is_time=True),
    _figure_column("acceptance_len", ("", "accept"), 6),
    _Column(("", "spread"), 6, lambda point: percent_text(spread_frac(point))),
    _Column(("", "n"), 3, lambda point: str(point.num_samples)),
)


def results_table(run: Run, width: int = 80) -> str:
    """The table, its footnotes and its definitions; lines are wrapped at `width` (the table itself needs 79)."""
    rows = rows_of(run)
    measured = [row for row in rows if row.point.num_samples]
    parts = [_heading(run, rows, width)]
    if measured:
        parts.append(_table(measured))
    footnotes = (
        footnotes_of(measured),
        sources_of(measured),
        step_parts_of(measured),
        loads_of(run, measured),
        needles_of(rows),
        missing_of(run, rows),
        remarks_of(run, rows),
    )
    parts += ["\n".join(_wrapped(line, width, "  ") for line in lines) for lines in footnotes]
    if measured:
        parts.append(_wrapped(definitions_of(run), width))
    return visible("\n\n".join(part for part in parts if part)) + "\n"


def definitions_of(run: Run) -> str:
    """How each column of the table is defined."""
    if run.header.source is not None:
        return _BY_SOURCE
    return _BY_METHOD.get(run.header.spec.method, _BY_METHOD["streaming"]) + _BY_ALL


def point_line(run: Run, point: Point) -> str:
    """One point in one line, for live progress: `11k: TTFT 4.31 s, prefill 2659 tok/s, ...`, marks included."""
    doubts = point_doubts(run, point)
    name = tokens_text(point.context_len)
    if any(concurrency != 1 for concurrency in (*run.header.spec.concurrencies, point.concurrency)):
        name += f" x {point.concurrency}"
    shown = [
        f"{label} {text}{unit}{doubts.mark(figure)}"
        for figure, label, text, unit in (
            ("ttft_s", "TTFT", median_seconds(point, "ttft_s"), ""),
            ("prefill_tok_s", "prefill", rate_text(median_of(point, "prefill_tok_s")), " tok/s"),
            ("decode_tok_s", "decode", rate_text(median_of(point, "decode_tok_s")), " tok/s"),
            ("tpot_s", "", ms_text(median_of(point, "tpot_s")), " ms/token"),
            ("tokens_per_step", "", rate_text(median_of(point, "tokens_per_step")), " tok/step"),
            ("step_s", "", ms_text(median_of(point, "step_s")), " ms/step"),
        )
        if text != NOTHING
    ]
    if not shown:
        shown = [f"no figures ({point.num_failed} failed, {len(point.refused_pairs)} pairs refused)"]
    elif point.num_failed:
        shown.append(f"{point.num_failed} failed")
    return f"{name}: " + ", ".join(part.strip() for part in shown)


def _heading(run: Run, rows: list[Row], width: int) -> str:
    spec, server = run.header.spec, run.header.capabilities
    if run.header.source is not None:
        return _source_heading(run.header.source, server, width)
    who = " ".join(part for part in (server.engine, server.version) if part)
    where = " ".join((spec.url, *spec.embedded_flags))
    identity = ", ".join(part for part in (who, server.model and f"model {server.model}", where) if part)
    kinds = dict.fromkeys(kind for row in rows for kind in row.doubts.text.kinds) or {spec.text: None}
    natures = dict.fromkeys(row.doubts.text.nature for row in rows if row.doubts.text.nature)
    text = ", ".join(kinds) + (f" ({', '.join(natures)})" if natures else "")
    repeats = f"{spec.num_repeats} repeat" + ("s" if spec.num_repeats != 1 else "")
    how = f"{spec.method} method, {repeats}, text: {text}, {drafter_text(server)}"
    if spec.arrival != "closed":
        how += f", open-loop arrivals ({spec.arrival})"
    if spec.keep_cache:
        how += ", cache kept on purpose"
    return _wrapped(identity, width) + "\n" + _wrapped(how, width)


def _source_heading(source: Source, server: Capabilities, width: int) -> str:
    who = " ".join(part for part in (server.engine, server.version) if part)
    identity = ", ".join(part for part in (who, server.model and f"model {server.model}") if part)
    tool = " ".join(part for part in (source.tool, source.version) if part)
    how = f"reported by {tool}" + (f" ({source.path})" if source.path else "") + f", {drafter_text(server)}"
    return _wrapped(identity, width) + "\n" + _wrapped(how, width)


def drafter_text(server: Capabilities) -> str:
    """Whether a drafter is active, and which."""
    if server.speculation == "yes":
        return f"drafter: {server.speculation_method or 'active'}"
    return "no drafter" if server.speculation == "no" else "drafter: unknown"


def _table(rows: list[Row]) -> str:
    has_concurrency = have_concurrency(rows)
    columns = (_CONTEXT, *((_CONCURRENCY,) if has_concurrency else ()), *_COLUMNS)
    lines = zip(*(column.lines(rows) for column in columns), strict=True)
    return "\n".join(" ".join(cells).rstrip() for cells in lines)


def _wrapped(text: str, width: int, indent: str = "") -> str:
    return "\n".join(
        textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    )
