"""The results table as plain text, at most 80 columns wide, without colour.

A figure in doubt carries a mark, and each mark has a footnote that names the guard and its evidence. Points that gave
no figures are listed with their reasons, never left out.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from dataclasses import dataclass

from deepdraft.metrics import Point, points_of
from deepdraft.records import Capabilities, Run
from deepdraft.report.doubt import UNVERIFIED_MARK, VIOLATED_MARK, PointDoubts, point_doubts
from deepdraft.report.number import NOTHING, ms_text, percent_text, rate_text
from deepdraft.units import seconds_text, tokens_text

DEFINITIONS = (
    "TTFT: request sent -> first token (answer, reasoning or tool call). prefill: uncached prompt tokens / TTFT. "
    "ms/token: (last - first token arrival) / tokens after the first arrival; decode: its inverse. "
    "tok/step: tokens a decode step commits. ms/step: one decode or verify step, which is not ms/token. "
    "accept: tokens a verify step commits, bonus included. Each figure: median of n. "
    "spread: (largest - smallest) / median over the n, of TTFT or ms/token, whichever is larger."
)


@dataclass(frozen=True, slots=True)
class _Row:
    point: Point
    doubts: PointDoubts


@dataclass(frozen=True, slots=True)
class _Column:
    head: tuple[str, str]
    width: int
    cells: tuple[str, ...]

    def lines(self) -> list[str]:
        """Both lines of the head and every cell, flush right; the last place of a cell is its mark's."""
        return [text.rjust(self.width) for text in (*self.head, *self.cells)]


def results_table(run: Run, width: int = 80) -> str:
    """The table, its footnotes and its definitions; lines are wrapped at `width` (the table itself needs 79)."""
    rows = [_Row(point, point_doubts(run, point)) for point in points_of(run)]
    measured = [row for row in rows if row.point.figures]
    parts = [_heading(run, rows, width)]
    if measured:
        parts.append(_table(measured))
    parts += [
        _footnotes(measured, width),
        _sources(measured, width),
        _loads(run, measured, width),
        _needles(rows, width),
        _missing(run, rows, width),
        _remarks(run, rows, width),
    ]
    if measured:
        parts.append(_wrapped(DEFINITIONS, width))
    return "\n\n".join(part for part in parts if part) + "\n"


def point_line(run: Run, point: Point) -> str:
    """One point in one line, for live progress: `11k: TTFT 4.31 s, prefill 2659 tok/s, ...`, marks included."""
    doubts = point_doubts(run, point)
    name = tokens_text(point.context_len)
    if any(concurrency != 1 for concurrency in (*run.header.spec.concurrencies, point.concurrency)):
        name += f" x {point.concurrency}"
    shown = [
        f"{label} {text}{unit}{doubts.mark(figure)}"
        for figure, label, text, unit in (
            ("ttft_s", "TTFT", _seconds(point, "ttft_s"), ""),
            ("prefill_tok_s", "prefill", rate_text(_median(point, "prefill_tok_s")), " tok/s"),
            ("decode_tok_s", "decode", rate_text(_median(point, "decode_tok_s")), " tok/s"),
            ("tpot_s", "", ms_text(_median(point, "tpot_s")), " ms/token"),
            ("tokens_per_step", "", rate_text(_median(point, "tokens_per_step")), " tok/step"),
            ("step_s", "", ms_text(_median(point, "step_s")), " ms/step"),
        )
        if text != NOTHING
    ]
    if not shown:
        shown = [f"no figures ({point.num_failed} failed, {len(point.refused_pairs)} pairs refused)"]
    elif point.num_failed:
        shown.append(f"{point.num_failed} failed")
    return f"{name}: " + ", ".join(part.strip() for part in shown)


def _heading(run: Run, rows: list[_Row], width: int) -> str:
    spec, server = run.header.spec, run.header.capabilities
    who = " ".join(part for part in (server.engine, server.version) if part)
    identity = ", ".join(part for part in (who, server.model and f"model {server.model}", spec.url) if part)
    kinds = dict.fromkeys(kind for row in rows for kind in row.doubts.text.kinds) or {spec.text: None}
    how = f"{spec.method} method, {spec.num_repeats} repeats, text: {', '.join(kinds)}, {_drafter(server)}"
    if spec.arrival != "closed":
        how += f", open-loop arrivals ({spec.arrival})"
    if spec.keep_cache:
        how += ", cache kept on purpose"
    return _wrapped(identity, width) + "\n" + _wrapped(how, width)


def _drafter(server: Capabilities) -> str:
    if server.speculation == "yes":
        return f"drafter: {server.speculation_method or 'active'}"
    return "no drafter" if server.speculation == "no" else "drafter: unknown"


def _table(rows: list[_Row]) -> str:
    columns = [_column(rows, ("", "ctx"), 6, lambda row: tokens_text(row.point.context_len), "context_len")]
    if any(row.point.concurrency != 1 for row in rows):
        columns.append(_column(rows, ("", "c"), 3, lambda row: str(row.point.concurrency)))
    columns += [
        _column(rows, ("", "TTFT "), 8, lambda row: _seconds(row.point, "ttft_s"), "ttft_s"),
        _figure(rows, ("prefill", "tok/s "), 7, "prefill_tok_s"),
        _figure(rows, ("decode", "tok/s "), 7, "decode_tok_s"),
        _figure(rows, ("ms ", "/token "), 8, "tpot_s", is_time=True),
        _figure(rows, ("tok ", "/step "), 7, "tokens_per_step"),
        _figure(rows, ("ms ", "/step "), 7, "step_s", is_time=True),
        _figure(rows, ("", "accept"), 6, "acceptance_len"),
        _column(rows, ("", "spread"), 6, lambda row: percent_text(_spread_frac(row.point))),
        _column(rows, ("", "n"), 3, lambda row: str(_num_samples(row.point))),
    ]
    return "\n".join(" ".join(cells).rstrip() for cells in zip(*(column.lines() for column in columns), strict=True))


def _column(rows, head, width, text, figure=None):  # type: ignore[no-untyped-def]
    raise NotImplementedError
