"""What was seen at one place of a curve: the repeats measured there, or the one rounded value that a table prints.

The rest of this package is handed these, so that it knows nothing of runs and points.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.stats.summary import median


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """The values at one `x`, all above zero, in the order they were measured."""

    x: float
    """The place: a context length in tokens, as counted and not as asked."""
    values: tuple[float, ...]
    """One value an independent repeat. Requests that ran at the same time are no repeats: give their median."""
    half_width: float | None = None
    """How far off a value may be by rounding. None: nothing was rounded, or how is not known."""
    limits: tuple[float, float] | None = None
    """The smallest and the largest that the median may be by rounding, where that is not symmetric (the inverse of a
    rounded figure). None: the median -+ half_width."""
    num_behind: int | None = None
    """How many samples one value stands for (a table's mean of 10). None: not known, or one."""

    @property
    def middle(self) -> float:
        """The median of the values."""
        return median(self.values)

    @property
    def rounding(self) -> tuple[float, float] | None:
        """The median's limits by rounding alone; None where nothing of rounding is known."""
        if self.limits is not None:
            return self.limits
        if self.half_width is None:
            return None
        return self.middle - self.half_width, self.middle + self.half_width

    @property
    def error(self) -> float:
        """The larger distance from the median to its limits by rounding; 0 where nothing was rounded."""
        limits = self.rounding
        return 0.0 if limits is None else max(self.middle - limits[0], limits[1] - self.middle, 0.0)


def reciprocal(observed: Observed, dividend: float = 1.0) -> Observed:
    """dividend / value, with the rounding carried over exactly: 0.7 +- 0.05 tok/s is 1,333 to 1,538 ms a token.

    Raises ValueError when a value, or the lowest it may have been, is not above zero.
    """
    limits = observed.rounding
    if min(observed.values) <= 0 or (limits is not None and limits[0] <= 0):
        raise ValueError("no reciprocal of what may be zero")
    return Observed(
        x=observed.x,
        values=tuple(dividend / value for value in observed.values),
        limits=None if limits is None else (dividend / limits[1], dividend / limits[0]),
        num_behind=observed.num_behind,
    )


def by_place(observed: tuple[Observed, ...]) -> tuple[Observed, ...]:
    """In ascending order of x; those at the same x are brought together.

    Raises ValueError for a place without values, or a value or an x that is not above zero.
    """
    places: dict[float, Observed] = {}
    for one in observed:
        if not one.values or min(one.values) <= 0 or one.x <= 0:
            raise ValueError(f"not above zero: {one.values} at {one.x:g}")
        before = places.get(one.x)
        places[one.x] = one if before is None else _joined(before, one)
    return tuple(places[x] for x in sorted(places))


def _joined(first: Observed, second: Observed) -> Observed:
    widths = [one.error for one in (first, second) if one.rounding is not None]
    return Observed(
        x=first.x,
        values=(*first.values, *second.values),
        half_width=max(widths) if widths else None,
        num_behind=first.num_behind if first.num_behind == second.num_behind else None,
    )
