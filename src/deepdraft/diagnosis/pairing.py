"""Points of two runs that measured the same thing: the same length, within 5 %, one curve each."""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint

SAME_LEN_FRAC = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One length in two runs, with the figure in each."""

    own: GuardedPoint
    other: GuardedPoint
    own_value: float
    other_value: float

    @property
    def context_len(self) -> int:
        """Of this run's point."""
        return self.own.context_len

    @property
    def ratio(self) -> float:
        """other / own: above 1 this run is the faster one where the figure is a time, the slower one where it is a "
        "rate."""
        return self.other_value / self.own_value


def pairs(case: Case, other: Case, figure: str) -> tuple[Pair, ...]:
    """Each point of the case's curve with the other run's nearest of the same length, by growing length."""
    found = []
    theirs = other.curve(figure)
    for own in case.curve(figure).points:
        near = [
            point
            for point in theirs.points
            if abs(point.context_len - own.context_len) <= SAME_LEN_FRAC * own.context_len
        ]
        if near:
            best = min(near, key=lambda point: abs(point.context_len - own.context_len))
            found.append(
                Pair(
                    own=own,
                    other=best,
                    own_value=case.curve(figure).value(own),
                    other_value=theirs.value(best),
                )
            )
    return tuple(found)
