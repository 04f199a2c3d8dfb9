"""What a pass takes, as a function of its rows and of the cached tokens it reads: learned while running.

A law with few parameters would be wrong here: rows of experts cost in steps, small passes are bound by bandwidth and
wide ones by arithmetic, and all of it depends on the machine. So seconds are kept as they were observed, in cells of
(requests, rows beyond one a request, cached tokens), each by powers of two; a cell says the median of its last few.
Between cells lines are drawn: cost is linear in cached tokens, and close to linear in rows from one cell to the next.
Where a width was never seen at a context, it keeps the ratio to plain steps that it has at the nearest context where
both were.

A median forgets an outlier at once and follows a change after half of `WINDOW` observations. What slows or speeds up
everything (other work on the machine, its clock) is kept apart, as one factor that any pass tells, and cells hold
seconds at factor 1: else a width that was last seen on a busy machine would look dear for as long as it isn't tried.

The first dimension keeps apart what is not the same at equal sums: sixteen requests of 1k with one row each, and one
of 16k with sixteen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

WINDOW = 5
"""Observations that a cell remembers."""
_CHANGE = 1.3
"""A factor between passes and their cells that is no noise any more, nor a cell's own affair."""
_NEAR = 2.0
"""Beyond this factor of cached tokens a cell says nothing by itself."""
_PLAIN = 0


@dataclass(frozen=True, slots=True)
class RowCosts:
    """Seconds of a pass at one context, by rows: straight lines between known widths, the last one going on."""

    rows: tuple[float, ...]
    """Rising; the first is a plain step's: a row a request."""
    seconds: tuple[float, ...]
    """Never falling: a wider pass does no less."""
    _by_nodes: list[float] = field(default_factory=list, repr=False, compare=False)
    """What `first` has computed."""

    @property
    def plain_s(self) -> float:
        """Of a step that decodes all its requests plainly."""
        return self.seconds[0]

    @property
    def knows_drafts(self) -> bool:
        """Whether any pass with drafts was seen."""
        return len(self.rows) > 1

    def of(self, num_rows: float) -> float:
        """Seconds of a pass of that many rows. Without a pass with drafts it is a plain step's."""
        rows, seconds = self.rows, self.seconds
        if len(rows) == 1 or num_rows <= rows[0]:
            return seconds[0]
        place = min(bisect_right(rows, num_rows), len(rows) - 1)
        frac = (num_rows - rows[place - 1]) / (rows[place] - rows[place - 1])
        return seconds[place - 1] + frac * (seconds[place] - seconds[place - 1])

    def first(self, num_nodes: int) -> Sequence[float]:
        """[num_nodes + 1 or more]: as `up_to`, computed once: what a plan stands for is asked at each step."""
        if len(self._by_nodes) <= num_nodes:
            self._by_nodes[:] = self.up_to(num_nodes).tolist()
        return self._by_nodes

    def up_to(self, num_nodes: int) -> NDArray[np.float64]:
        """[num_nodes + 1]: of passes with 0, 1, ... rows more than a plain step."""
        first, last = self.rows[0], self.rows[-1]
        wanted = np.arange(num_nodes + 1) + first
        found: NDArray[np.float64] = np.interp(wanted, self.rows, self.seconds)
        if num_nodes + first > last and len(self.rows) > 1:
            slope = (self.seconds[-1] - self.seconds[-2]) / (last - self.rows[-2])
            found += np.maximum(wanted - last, 0) * slope
        return found


class Costs:
    """Of one engine; bounded by the number of cells."""

    def __init__(self) -> None:
        self._passes: dict[int, _Table] = {}
        """By the size class of the number of requests."""
        self._drafts = _Table()
        self._slowness_seen: deque[float] = deque([1.0] * WINDOW, maxlen=WINDOW)
        self.slowness = 1.0
        """Of the machine, about now: seconds of a pass over those of its cell."""

    def observe_forward(self, num_requests: int, num_rows: int, kv_tokens: int, seconds: float) -> None:
        """A target pass with all of its step that is not drafting: `num_rows` over all its requests, which had
        `kv_tokens` cached in sum. A plain step has a row a request."""
        table = self._passes.setdefault(_size_class(num_requests), _Table())
        num_nodes = num_rows - num_requests
        width_class = _size_class(num_nodes)
        usual_s = table.usual_s(width_class, kv_tokens)
        if usual_s:
            self._slowness_seen.append(seconds / usual_s)
            lately = _median(self._slowness_seen)
            if max(lately, self.slowness) > _CHANGE * min(lately, self.slowness):
                self.slowness = lately
        table.observe(width_class, num_nodes or num_requests, kv_tokens, seconds / self.slowness)

    def observe_draft(self, num_requests: int, kv_tokens: int, seconds: float) -> None:
        """A drafter's pass for that many requests, and the building of their trees."""
        self._drafts.observe(_size_class(num_requests), num_requests, kv_tokens, seconds / self.slowness)

    def forward(self, num_requests: int, kv_tokens: int) -> RowCosts | None:
        """Passes of that many requests over that many cached tokens; None where no plain step is known."""
        size = _size_class(num_requests)
        own = self._passes.get(size)
        plain_s = own.seconds(_PLAIN, kv_tokens) if own else None
        if own is None or plain_s is None:
            return None
        drafted = own.drafted(kv_tokens) or self._borrowed(size, num_requests, kv_tokens, plain_s)
        points = [(float(num_requests), plain_s), *((num_requests + nodes, spent) for nodes, spent in drafted)]
        return _rising(points, self.slowness)

    def forward_s(self, num_requests: int, num_rows: int, kv_tokens: int) -> float | None:
        """Seconds of one such pass; None: not known."""
        costs = self.forward(num_requests, kv_tokens)
        return None if costs is None else costs.of(num_rows)

    def draft_s(self, num_requests: int, kv_tokens: int) -> float | None:
        """Of drafting for that many requests; None: never seen."""
        costs = _rising(self._drafts.drafted(kv_tokens), self.slowness)
        return None if costs is None else costs.of(num_requests)

    def num_plain(self, num_requests: int, kv_tokens: int) -> int:
        """Plain steps of about as many requests that were seen within a factor of 2 of these cached tokens."""
        table = self._passes.get(_size_class(num_requests))
        return table.num_near(_PLAIN, kv_tokens) if table else 0

    @property
    def num_drafts(self) -> int:
        """Drafter passes seen."""
        return self._drafts.num_observed

    def _borrowed(self, size: int, num_requests: int, kv_tokens: int, plain_s: float) -> list[tuple[float, float]]:
        """Where with this number of requests no draft was verified yet: as with another number of them, the same
        nodes a request at the same ratio to a plain step."""
        having = [each for each, table in self._passes.items() if table.has_drafts and table.has_plain]
        if not having:
            return []
        table = self._passes[min(having, key=lambda each: abs(each - size))]
        share = num_requests / table.width(_PLAIN)
        their_plain_s = table.seconds(_PLAIN, kv_tokens / share)
        if not their_plain_s:
            return []
        ratio = plain_s / their_plain_s
        return [(nodes * share, ratio * spent) for nodes, spent in table.drafted(kv_tokens / share)]


class _Cell:
    """The last observations of about the same pass, and their medians."""

    __slots__ = ("_seen", "num_seen")

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float, float]] = deque(maxlen=WINDOW)
        self.num_seen = 0

    def observe(self, width: float, kv_tokens: float, seconds: float) -> None:
        self._seen.append((width, kv_tokens, seconds))
        self.num_seen += 1

    # The lower one of two in the middle: a first observation is often one of warming up.

    @property
    def width(self) -> float:
        return _median([seen[0] for seen in self._seen])

    @property
    def kv_tokens(self) -> float:
        return _median([seen[1] for seen in self._seen])

    @property
    def seconds(self) -> float:
        return _median([seen[2] for seen in self._seen])


class _Table:
    """Cells by width and context."""

    def __init__(self) -> None:
        self._cells: dict[int, dict[int, _Cell]] = {}
        """Class of width -> class of context -> cell, both in rising order."""
        self.num_observed = 0

    @property
    def has_drafts(self) -> bool:
        """Whether any width but a plain step's was seen."""
        return any(width != _PLAIN for width in self._cells)

    @property
    def has_plain(self) -> bool:
        """Whether a plain step was seen."""
        return _PLAIN in self._cells

    def observe(self, width_class: int, width: float, kv_tokens: float, seconds: float) -> None:
        octave = int(kv_tokens).bit_length()
        cell = self._cells.get(width_class, {}).get(octave)
        if cell is None:
            cell = _Cell()
            cells = self._cells.get(width_class, {}) | {octave: cell}
            self._cells = dict(sorted((self._cells | {width_class: dict(sorted(cells.items()))}).items()))
        cell.observe(width, kv_tokens, seconds)
        self.num_observed += 1

    def usual_s(self, width_class: int, kv_tokens: float) -> float | None:
        """Of the cell that such a pass belongs to; None where it was seen less than twice."""
        cell = self._cells.get(width_class, {}).get(int(kv_tokens).bit_length())
        return cell.seconds if cell is not None and cell.num_seen > 1 else None

    def width(self, width_class: int) -> float:
        """Of its passes lately; of plain steps that is their requests."""
        return max(self._cells[width_class].values(), key=lambda cell: cell.num_seen).width

    def num_near(self, width_class: int, kv_tokens: float) -> int:
        cells = self._cells.get(width_class, {}).values()
        return sum(cell.num_seen for cell in cells if _is_near(cell.kv_tokens, kv_tokens))

    def drafted(self, kv_tokens: float) -> list[tuple[float, float]]:
        """(width, seconds) at this context of each width but a plain step's."""
        return [
            (self.width(each), seconds)
            for each in self._cells
            if each != _PLAIN and (seconds := self.seconds(each, kv_tokens)) is not None
        ]

    def seconds(self, width_class: int, kv_tokens: float) -> float | None:
        """Of this width at this context; None where the width was never seen."""
        cells = list(self._cells.get(width_class, {}).values())
        if not cells:
            return None
        place = bisect_right(cells, kv_tokens, key=lambda cell: cell.kv_tokens)
        if 0 < place < len(cells):
            return _between(cells[place - 1], cells[place], kv_tokens)
        nearest = cells[place - 1] if place else cells[0]
        if width_class == _PLAIN or _PLAIN not in self._cells:
            return self._beyond(cells, nearest, kv_tokens)
        here, there = self.seconds(_PLAIN, kv_tokens), self.seconds(_PLAIN, nearest.kv_tokens)
        return nearest.seconds * here / there if here and there else nearest.seconds

    @staticmethod
    def _beyond(cells: list[_Cell], nearest: _Cell, kv_tokens: float) -> float:
        """On the line through the two outermost cells, not further than the data reach; else as the nearest."""
        if len(cells) < 2 or not _is_near(nearest.kv_tokens, kv_tokens):
            return nearest.seconds
        next_one = cells[1] if nearest is cells[0] else cells[-2]
        slope = (next_one.seconds - nearest.seconds) / ((next_one.kv_tokens - nearest.kv_tokens) or 1)
        steepest = nearest.seconds / max(1.0, nearest.kv_tokens)
        return nearest.seconds + min(max(0.0, slope), steepest) * (kv_tokens - nearest.kv_tokens)


def _between(low: _Cell, high: _Cell, kv_tokens: float) -> float:
    frac = (kv_tokens - low.kv_tokens) / (high.kv_tokens - low.kv_tokens)
    return low.seconds + frac * (high.seconds - low.seconds)


def _rising(points: list[tuple[float, float]], slowness: float) -> RowCosts | None:
    """Points by rows, their seconds times `slowness`, equal rows as one; where one is dearer than a wider one
    both are their mean (the pool-adjacent-violators rule of isotonic regression)."""
    if not points:
        return None
    pooled: list[tuple[list[float], float]] = []  # (rows, their common seconds)
    for rows, seconds in sorted(points):
        together = [rows]
        while pooled and (pooled[-1][1] >= seconds or pooled[-1][0][-1] == rows):
            earlier, their_s = pooled.pop()
            seconds = (their_s * len(earlier) + seconds * len(together)) / (len(earlier) + len(together))
            together = [*earlier, *together]
        pooled.append((together, seconds))
    flat = {rows: seconds * slowness for together, seconds in pooled for rows in together}
    return RowCosts(tuple(flat), tuple(flat.values()))


def _size_class(number: int) -> int:
    """0, 1, 2, 3-4, 5-8, 9-16, ... are 0, 1, 2, 3, 4, 5, ..."""
    return (number - 1).bit_length() + 1 if number > 0 else 0


def _is_near(one: float, other: float) -> bool:
    return one <= other * _NEAR and other <= one * _NEAR


def _median(numbers: Sequence[float]) -> float:
    return sorted(numbers)[(len(numbers) - 1) // 2]
