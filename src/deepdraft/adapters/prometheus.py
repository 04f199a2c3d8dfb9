"""Prometheus' text format, read for the few families an adapter asks for.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/ and the OpenMetrics text format (exemplars after
`#`, timestamps after the value; backslash, quote and line end escaped in label values). A server's page has a
thousand lines of histogram buckets; only lines of wanted families are taken apart. Broken lines are skipped, never
guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_.:]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_CLOSING = re.compile(r"\s*\}")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = {"n": "\n", "\\": "\\", '"': '"'}


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: a value under its labels."""

    name: str
    labels: dict[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class MetricsPage:
    """The wanted samples of one page, and the names of all families that it declares or shows."""

    samples: dict[str, tuple[Sample, ...]] = field(default_factory=dict)
    declared: frozenset[str] = frozenset()
    """Names in # TYPE lines, as written there: a counter may be declared without its _total."""

    def values(self, name: str) -> tuple[float, ...]:
        """The values under one name, NaN left out."""
        return tuple(s.value for s in self.samples.get(name, ()) if s.value == s.value)

    def first(self, name: str) -> Sample | None:
        """The first sample of that name."""
        found = self.samples.get(name, ())
        return found[0] if found else None

    def has(self, name: str) -> bool:
        """Whether the server knows this family, even when no series of it exists yet."""
        return name in self.samples or name in self.declared or name.removesuffix("_total") in self.declared

    def total(self, name: str, repeats: Collection[str] = (), **labels: str) -> float | None:
        """The sum over all series of a family; None when the server does not know it, 0 when it declares it and has
        no series yet.

        repeats: labels that tell apart copies of the same figure rather than parts of it (the ranks of one tensor
        parallel group each report the same requests): of such copies the largest counts once.
        labels: only series with these label values.
        """
        if not self.has(name):
            return None
        groups: dict[tuple[tuple[str, str], ...], float] = {}
        for sample in self.samples.get(name, ()):
            if sample.value != sample.value or any(sample.labels.get(key) != value for key, value in labels.items()):
                continue
            group = tuple(sorted((key, value) for key, value in sample.labels.items() if key not in repeats))
            groups[group] = max(groups.get(group, sample.value), sample.value)
        return sum(groups.values())


def metrics_page(text: str, names: Collection[str]) -> MetricsPage:
    """Read a page, keeping only samples whose name is in `names`."""
    wanted = frozenset(names)
    found: dict[str, list[Sample]] = {}
    declared: set[str] = set()
    for line in text.split("\n"):  # splitlines() would also cut at characters that label values may hold
        if line.startswith("#"):
            words = line.split(None, 3)
            if len(words) > 2 and words[1] == "TYPE":
                declared.add(words[2])
            continue
        brace, space = line.find("{"), line.find(" ")
        end = min(brace, space) if brace >= 0 and space >= 0 else max(brace, space)
        name = line[:end] if end > 0 else ""
        if name in wanted:
            sample = _sample(name, line[end:])
            if sample is not None:
                found.setdefault(name, []).append(sample)
    return MetricsPage({name: tuple(samples) for name, samples in found.items()}, frozenset(declared))


def _sample(name: str, rest: str) -> Sample | None:
    labels: dict[str, str] = {}
    if rest.startswith("{"):
        position = 1
        while match := _LABEL.match(rest, position):
            labels[match[1]] = _ESCAPE.sub(lambda m: _ESCAPED.get(m[1], m[0]), match[2])
            position = match.end()
        closing = _CLOSING.match(rest, position)
        if closing is None:
            return None
        rest = rest[closing.end() :]
    words = rest.split()
    try:
        return Sample(name, labels, float(words[0]))  # float() reads NaN, +Inf and -Inf as Prometheus writes them
    except (IndexError, ValueError):
        return None
