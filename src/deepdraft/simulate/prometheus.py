"""The Prometheus text format, as far as the metrics endpoints need it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Sample:
    """One line: labels (sorted when printed) and value."""

    value: float | str
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its full name, what it means, and its samples."""

    name: str
    help: str
    kind: Literal["counter", "gauge"]
    samples: tuple[Sample, ...]


def family(
    name: str, help_text: str, kind: Literal["counter", "gauge"], value: float | str, labels: Mapping[str, str]
) -> Family:
    """A metric of one sample."""
    return Family(name, help_text, kind, (Sample(value, labels),))


def exposition(families: Iterable[Family]) -> str:
    """The text of a metrics page."""
    lines = []
    for each in families:
        lines.append(f"# HELP {each.name} {each.help}")
        lines.append(f"# TYPE {each.name} {each.kind}")
        lines.extend(
            f"{each.name}{_labels_text(sample.labels)} {_value_text(sample.value)}" for sample in each.samples
        )
    return "\n".join(lines) + "\n"


def _labels_text(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{value}"' for name, value in sorted(labels.items())) + "}"


def _value_text(value: float | str) -> str:
    return value if isinstance(value, str) else repr(float(value))
