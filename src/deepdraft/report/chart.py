"""A chart as figures and words, before anybody draws it: the page, matplotlib and pgfplots all take this.

Values are in the units of the catalogue (seconds, tokens, shares); an axis says how they are printed. Every chart can
be read as a table as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deepdraft.report.number import NOTHING, ms_text, percent_text, rate_text
from deepdraft.units import seconds_text, tokens_text

Kind = Literal["length", "count", "seconds", "ms", "number", "share"]
"""How values are printed: tokens (11k), a whole number, 4.3 s, 50.0 ms, 3.21, 42 %."""
Role = Literal["points", "law", "floor", "part"]

_FACTOR: dict[Kind, float] = {"ms": 1e3, "share": 1e2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis."""

    label: str
    kind: Kind
    is_log: bool = False
    """How it starts; the page lets a reader change it."""

    @property
    def unit(self) -> str:
        """What the axis counts in; empty for what has none."""
        return {"seconds": "s", "ms": "ms", "share": "%", "length": "tokens"}.get(self.kind, "")

    @property
    def titled(self) -> str:
        """The label, with the unit where the label leaves it out."""
        is_said = not self.unit or self.kind in ("ms", "length")
        return self.label if is_said else f"{self.label} ({self.unit})"

    @property
    def factor(self) -> float:
        """Stored value -> what the axis counts in: seconds to milliseconds, a share to per cent."""
        return _FACTOR.get(self.kind, 1.0)

    def text(self, value: float | None) -> str:
        """A value as printed, with its unit."""
        if value is None:
            return NOTHING
        match self.kind:
            case "length":
                return tokens_text(value)
            case "count":
                return f"{value:.0f}"
            case "seconds":
                return seconds_text(value)
            case "ms":
                return f"{ms_text(value)} ms"
            case "share":
                return percent_text(value)
            case "number":
                return rate_text(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve, one set of points, or one part of a stack."""

    name: str
    role: Role
    colour_index: int
    """Series of one run share it."""
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    lows: tuple[float | None, ...] | None = None
    """The ends of the bar or band at each place; None: there are none."""
    highs: tuple[float | None, ...] | None = None
    marks: tuple[str, ...] | None = None
    """`!` or `?` at each place: the figure is in doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A horizontal line with a meaning."""

    y: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A place on the x axis, with the range it may lie in."""

    x: float
    label: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """One chart."""

    name: str
    """A word for file names and anchors."""
    title: str
    summary: str
    """What it shows, in a sentence, for those who can't see it."""
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    levels: tuple[Level, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    notes: tuple[str, ...] = ()
    is_stack: bool = False
    """Series of role "part" are stacked, one bar at each place."""

    def tabled(self) -> tuple[Series, ...]:
        """The series a table shows: everything but curves, which are read off at the points' places."""
        return tuple(each for each in self.series if each.role in ("points", "part"))

    def places(self) -> tuple[float, ...]:
        """Every place where a point stands, ascending."""
        return tuple(sorted({x for each in self.tabled() for x in each.xs}))


def at_place(series: Series, x: float) -> int | None:
    """The index of a series' value at `x`; None where it has none."""
    return series.xs.index(x) if x in series.xs else None
