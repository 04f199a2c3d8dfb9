"""From a page of an engine's metrics to a ServerReading under our own names.

An adapter lists, for each of our names, where its engine keeps the figure; several versions may keep it in several
places, the first that the server knows is taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from deepdraft.adapters.prometheus import MetricsPage, metrics_page
from deepdraft.records import ServerReading


@dataclass(frozen=True, slots=True)
class Series:
    """One family, or those of its series that carry these label values."""

    name: str
    labels: tuple[tuple[str, str], ...] = ()


Sum = tuple[Series, ...]
"""Figures that are added up; the sum is unknown when one of them is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterMap:
    """Where an engine keeps what."""

    counters: Mapping[str, tuple[Sum, ...]]
    """Our counter's name -> alternatives."""
    num_running: tuple[Sum, ...] = ()
    num_waiting: tuple[Sum, ...] = ()
    gauges: Mapping[str, tuple[Sum, ...]] = field(default_factory=dict)
    accepted_at_depth: str | None = None
    """A counter with a `position` label, 0-based."""
    repeats: frozenset[str] = frozenset()
    """Labels that tell apart copies of one figure rather than parts of it."""
    extra_names: tuple[str, ...] = ()
    """Families that the adapter reads itself."""

    @property
    def names(self) -> frozenset[str]:
        """All families that are read."""
        sums: Iterable[Sum] = (
            *(sum_ for alternatives in self.counters.values() for sum_ in alternatives),
            *(sum_ for alternatives in self.gauges.values() for sum_ in alternatives),
            *self.num_running,
            *self.num_waiting,
        )
        found = {term.name for sum_ in sums for term in sum_} | set(self.extra_names)
        if self.accepted_at_depth is not None:
            found.add(self.accepted_at_depth)
        return frozenset(found)

    def page(self, text: str) -> MetricsPage:
        """The page, with only the families of this map."""
        return metrics_page(text, self.names)


def series(name: str, **labels: str) -> Sum:
    """A figure that is one family."""
    return (Series(name, tuple(sorted(labels.items()))),)


def reading(page: MetricsPage, where: CounterMap, at_s: float, source: str) -> ServerReading:
    """The page's figures under our names. `at_s`: seconds since the sweep began."""
    counters = {}
    for name, alternatives in where.counters.items():
        value = _value(page, alternatives, where.repeats)
        if value is not None:
            counters[name] = value
    if where.accepted_at_depth:
        counters.update(_accepted_at_depth(page, where.accepted_at_depth, where.repeats))
    gauges = {}
    for name, alternatives in where.gauges.items():
        value = _value(page, alternatives, where.repeats)
        if value:  # these gauges read 0 when they were never set
            gauges[name] = value
    return ServerReading(
        at_s=at_s,
        source=source,
        num_running=_whole(_value(page, where.num_running, where.repeats)),
        num_waiting=_whole(_value(page, where.num_waiting, where.repeats)),
        counters=counters,
        gauges=gauges,
    )


def _value(page: MetricsPage, alternatives: tuple[Sum, ...], repeats: frozenset[str]) -> float | None:
    for terms in alternatives:
        values = [page.total(term.name, repeats, **dict(term.labels)) for term in terms]
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            return sum(known)
    return None


def _accepted_at_depth(page: MetricsPage, name: str, repeats: frozenset[str]) -> dict[str, float]:
    positions = {
        int(sample.labels["position"])
        for sample in page.samples.get(name, ())
        if sample.labels.get("position", "").isdigit()
    }
    if not positions:
        return {}
    found = {}
    for depth in range(max(positions) + 1):
        found[f"spec_accepted_at_{depth}"] = page.total(name, repeats, position=str(depth)) or 0.0
    return found


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
