"""The sweep's table as cells, for formats that set their own columns: Markdown, LaTeX, the HTML page.

The plain text table (`table`) has columns of fixed width and stays apart; both print every figure in the same words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from deepdraft.metrics import FIGURE_KINDS, Point
from deepdraft.report.number import NOTHING, ms_text, percent_text, rate_text
from deepdraft.report.row import Row, have_concurrency, median_of, median_seconds, spread_frac
from deepdraft.units import tokens_text

_DEFINITIONS = {kind.name: kind.definition for kind in FIGURE_KINDS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One cell."""

    text: str
    value: float | None = None
    """What the text was printed from, in the catalogue's unit; None: not known."""
    mark: str = ""
    """`!` or `?` when in doubt."""
    low: float | None = None
    high: float | None = None
    doubted_by: tuple[str, ...] = ()
    """The guards behind the mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The head of a column."""

    text: str
    unit: str = ""
    figure: str = ""
    """Its name in the catalogue; empty for what is no figure."""
    definition: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """cells[R][C], one row a point with figures."""

    heads: tuple[Head, ...]
    cells: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class _Column:
    head: Head
    text: Callable[[Point], str]
    value: Callable[[Point], float | None]

    def cell(self, row: Row) -> Cell:
        name = self.head.figure
        brief = row.point.summary(name) if name else None
        doubted_by = (*row.doubts.violated.get(name, ()), *row.doubts.unverified.get(name, ()))
        return Cell(
            text=self.text(row.point),
            value=self.value(row.point),
            mark=row.doubts.mark(name) if name else "",
            low=brief.low if brief is not None else None,
            high=brief.high if brief is not None else None,
            doubted_by=doubted_by,
        )


def _figure(text: str, unit: str, name: str, write: Callable[[Point, str], str]) -> _Column:
    return _Column(
        Head(text=text, unit=unit, figure=name, definition=_DEFINITIONS[name]),
        lambda point: write(point, name),
        lambda point: median_of(point, name),
    )


def _rate(point: Point, name: str) -> str:
    return rate_text(median_of(point, name))


def _ms(point: Point, name: str) -> str:
    return ms_text(median_of(point, name))


_CONTEXT = _Column(
    Head(
        text="context",
        unit="tokens",
        figure="context_len",
        definition="prompt tokens as counted, not as asked",
    ),
    lambda point: tokens_text(point.context_len),
    lambda point: point.context_len,
)
_CONCURRENCY = _Column(
    Head(text="streams", definition="requests at once"),
    lambda point: str(point.concurrency),
    lambda point: point.concurrency,
)
_COLUMNS = (
    _figure("TTFT", "", "ttft_s", median_seconds),
    _figure("prefill", "tok/s", "prefill_tok_s", _rate),
    _figure("decode", "tok/s", "decode_tok_s", _rate),
    _figure("time a token", "ms", "tpot_s", _ms),
    _figure("tokens a step", "", "tokens_per_step", _rate),
    _figure("time a step", "ms", "step_s", _ms),
    _figure("acceptance", "tokens", "acceptance_len", _rate),
    _Column(
        Head(
            text="spread",
            definition="(largest - smallest) / median over the samples, of TTFT or time a token, the larger one",
        ),
        lambda point: percent_text(spread_frac(point)),
        spread_frac,
    ),
    _Column(
        Head(text="n", definition="samples behind a figure"),
        lambda point: str(point.num_samples),
        lambda point: point.num_samples,
    ),
)


def grid_of(rows: list[Row]) -> Grid:
    """The points that gave figures; a column in which nothing is known is left out."""
    measured = [row for row in rows if row.point.num_samples]
    columns = (_CONTEXT, *((_CONCURRENCY,) if have_concurrency(measured) else ()), *_COLUMNS)
    known = [column for column in columns if any(column.text(row.point) != NOTHING for row in measured)]
    return Grid(
        heads=tuple(column.head for column in known),
        cells=tuple(tuple(column.cell(row) for column in known) for row in measured),
    )
