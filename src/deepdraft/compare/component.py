"""Two runs of one component, case by case: the ratio of their times with its interval, and what may be said of it.

The runs were not interleaved with each other, so whatever changed of the machine in between is in the ratio of times.
Each repeat of each run has a yardstick beside it, the ceiling by the machine's own rate, or a peer where no ceiling
is known: in units of that, what changed of the machine cancels. Where both intervals lie on the same side of 1 the
component is faster or slower; where they don't, it may be the machine that changed, and nothing is said. Within a run
the component and its peers took turns: those ratios are paired.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from deepdraft.errors import UsageError
from deepdraft.metrics.component import peer_ratios, seconds_of, shares_frac
from deepdraft.records.component import ComponentCase, ComponentRun
from deepdraft.stats import Summary
from deepdraft.stats.interval import Interval
from deepdraft.stats.observed import Observed
from deepdraft.stats.ratio import RatioEstimate, paired_ratio, unpaired_ratio

SAME_FRAC = 0.02
"""An interval that lies within this of 1 is no difference, whether or not 1 is in it."""
Answer = Literal["faster", "slower", "no difference shown", "cannot tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCase:
    """One case of both runs."""

    name: str
    before: Summary
    after: Summary
    """Seconds."""
    ratio: RatioEstimate
    """B's time / A's."""
    yardstick: str | None
    """`ceiling`, or a peer of both runs; None: there is neither."""
    in_yardsticks: RatioEstimate | None
    """B's time / A's, each in units of its own run's yardstick."""
    peers: dict[str, tuple[RatioEstimate, RatioEstimate]]
    """By peer of both runs: its time over the component's in A and in B, paired by repeat."""
    answer: Answer
    reason: str | None
    """Why it can't be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentComparison:
    """B against the baseline A."""

    before: ComponentRun
    after: ComponentRun
    cases: tuple[ComparedCase, ...]
    not_compared: tuple[tuple[str, str], ...]
    """Case and why."""


def compare_components(before: ComponentRun, after: ComponentRun) -> ComponentComparison:
    """Compare two runs; `before` is the baseline. Raises UsageError for runs of different components."""
    if before.header.component != after.header.component:
        raise UsageError(
            f"{before.header.component} and {after.header.component} are different components",
            hint="compare two runs of the same `deepdraft bench` command",
        )
    others = {case.name: case for case in after.cases}
    names = {case.name for case in before.cases}
    missing = [(case.name, "not in B") for case in before.cases if case.name not in others]
    missing += [(case.name, "not in A") for case in after.cases if case.name not in names]
    pairs = [(case, others[case.name]) for case in before.cases if case.name in others]
    return ComponentComparison(
        before=before,
        after=after,
        cases=tuple(_compared(one, other) for one, other in pairs if _differing(one, other) is None),
        not_compared=(
            *missing,
            *((one.name, reason) for one, other in pairs if (reason := _differing(one, other)) is not None),
        ),
    )


def _compared(before: ComponentCase, after: ComponentCase) -> ComparedCase:
    ratio = unpaired_ratio(*(_observed([repeat.seconds for repeat in case.repeats]) for case in (before, after)))
    yardstick, units = _yardstick(before, after)
    in_yardsticks = unpaired_ratio(*map(_observed, units)) if units else None
    answer, reason = _answer(ratio, in_yardsticks)
    return ComparedCase(
        name=before.name,
        before=seconds_of(before),
        after=seconds_of(after),
        ratio=ratio,
        yardstick=yardstick,
        in_yardsticks=in_yardsticks,
        peers={name: (_peer_ratio(before, name), _peer_ratio(after, name)) for name in _peers(before, after)},
        answer=answer,
        reason=reason,
    )


def _yardstick(
    before: ComponentCase, after: ComponentCase
) -> tuple[str | None, tuple[tuple[float, ...], tuple[float, ...]] | None]:
    """What both times can be measured in, and the times in it."""
    shares = shares_frac(before), shares_frac(after)
    if all(shares):
        return "ceiling", _inverse(*shares)
    for name in _peers(before, after):
        return name, _inverse(peer_ratios(before)[name], peer_ratios(after)[name])
    return None, None


def _inverse(before: Sequence[float], after: Sequence[float]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(1 / value for value in before), tuple(1 / value for value in after)


def _peers(before: ComponentCase, after: ComponentCase) -> tuple[str, ...]:
    others = peer_ratios(after)
    return tuple(name for name in peer_ratios(before) if name in others)


def _peer_ratio(case: ComponentCase, peer: str) -> RatioEstimate:
    pairs = [(repeat.seconds, repeat.peers_s[peer]) for repeat in case.repeats if peer in repeat.peers_s]
    return paired_ratio([own for own, _ in pairs], [other for _, other in pairs])


def _observed(values: Sequence[float]) -> Observed:
    return Observed(x=1.0, values=tuple(values))


def _differing(before: ComponentCase, after: ComponentCase) -> str | None:
    """Why cases of one name are not the same task; None: they are."""
    keys = [key for key in before.facts.keys() | after.facts.keys() if before.facts.get(key) != after.facts.get(key)]
    return f"they differ in {', '.join(sorted(keys))}" if keys else None


def _answer(ratio: RatioEstimate, against: RatioEstimate | None) -> tuple[Answer, str | None]:
    side = _side(ratio.interval)
    if side is None:
        return "cannot tell", "one repeat in each: the noise is not known"
    if against is None or _side(against.interval) == side:
        return side, None
    return "cannot tell", "seconds and yardsticks disagree: the machine may have changed"


def _side(interval: Interval | None) -> Literal["faster", "slower", "no difference shown"] | None:
    if interval is None:
        return None
    if interval.low >= 1 - SAME_FRAC and interval.high <= 1 + SAME_FRAC:
        return "no difference shown"
    if interval.high < 1:
        return "faster"
    return "slower" if interval.low > 1 else "no difference shown"
