"""What follows from a component's repeats: the ceiling that binds, the share of it that was reached, ratios to peers.

The least time of a case is the longest of its ceilings' times: work over the rate measured in the same repeat. A
share above 1 is no error: what stays in a processor's cache outruns a copy from memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.records.component import ComponentCase, ComponentRepeat
from deepdraft.stats import Summary, summary


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The least time of one run, and what sets it."""

    name: str
    """As in `ComponentCase.work`."""
    seconds: float


def ceiling(case: ComponentCase, repeat: ComponentRepeat) -> Ceiling | None:
    """What binds by this repeat's rates; None where no ceiling is known."""
    known = [
        Ceiling(name=name, seconds=amount / repeat.rates[name])
        for name, amount in case.work.items()
        if repeat.rates.get(name, 0.0) > 0
    ]
    return max(known, key=lambda one: one.seconds, default=None)


def ceiling_name(case: ComponentCase) -> str | None:
    """What binds in most repeats; None where no ceiling is known."""
    found = [one.name for repeat in case.repeats if (one := ceiling(case, repeat)) is not None]
    return max(dict.fromkeys(found), key=found.count, default=None)


def shares_frac(case: ComponentCase) -> tuple[float, ...]:
    """Least time over measured time, by repeat; empty where no ceiling is known."""
    found = ((repeat, ceiling(case, repeat)) for repeat in case.repeats)
    return tuple(least.seconds / repeat.seconds for repeat, least in found if least is not None)


def peer_ratios(case: ComponentCase) -> dict[str, tuple[float, ...]]:
    """The peer's time over the component's, by peer and repeat: 3.0 is a component that takes a third of the time."""
    names = dict.fromkeys(name for repeat in case.repeats for name in repeat.peers_s)
    return {
        name: tuple(repeat.peers_s[name] / repeat.seconds for repeat in case.repeats if name in repeat.peers_s)
        for name in names
    }


def seconds_of(case: ComponentCase) -> Summary:
    """Median, least and greatest of the repeats. Raises ValueError for a case without repeats."""
    found = summary([repeat.seconds for repeat in case.repeats])
    if found is None:
        raise ValueError(f"a case without repeats: {case.name}")
    return found


def parts_s(case: ComponentCase) -> dict[str, Summary]:
    """The same of each part that was measured."""
    names = dict.fromkeys(name for repeat in case.repeats for name in repeat.parts_s)
    found = {
        name: summary([repeat.parts_s[name] for repeat in case.repeats if name in repeat.parts_s]) for name in names
    }
    return {name: one for name, one in found.items() if one is not None}


def per_round(case: ComponentCase, count: str) -> float | None:
    """What was counted over the case's rounds, all repeats together: tokens a round. None: it wasn't counted."""
    rounds = sum(repeat.counts.get("rounds", 0.0) for repeat in case.repeats)
    counted = [repeat.counts[count] for repeat in case.repeats if count in repeat.counts]
    return sum(counted) / rounds if rounds and counted else None
