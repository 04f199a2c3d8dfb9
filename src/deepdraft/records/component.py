"""What `deepdraft bench` measured of one component: a header, then a line for each case, with every repeat.

In one repeat the component, its peers and the machine's own rates take turns, so that what slows the machine slows
them all: a share of a ceiling and a ratio to a peer are of the same repeat. Both are functions in
`metrics.component`; what is stored was measured or configured.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from deepdraft.records.line import End, Note
from deepdraft.records.schema_version import SCHEMA_VERSION

ComponentName = Literal["kernels", "moe", "tree", "round", "client"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentHeader:
    """The first line of a component's results file."""

    kind: Literal["component_header"] = "component_header"
    schema_version: int = SCHEMA_VERSION
    run_id: str
    created_at: str
    """UTC, ISO 8601."""
    deepdraft_version: str
    command_line: tuple[str, ...]
    component: ComponentName
    settings: dict[str, Any] = field(default_factory=dict)
    """As they took effect."""
    environment: dict[str, Any] = field(default_factory=dict)
    """The machine and the versions that ran."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRepeat:
    """One turn of everything that a case holds against each other."""

    seconds: float
    """Of one run of the component (of `client`: CPU seconds an event)."""
    rates: dict[str, float] = field(default_factory=dict)
    """What the machine did just then, a second, by ceiling: bytes copied (read + written) or read, operations of a
    matrix product, events received."""
    peers_s: dict[str, float] = field(default_factory=dict)
    """The same task done by each peer."""
    parts_s: dict[str, float] = field(default_factory=dict)
    """What `seconds` is made of, where that was measured."""
    counts: dict[str, float] = field(default_factory=dict)
    """What was counted beside it: rounds, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentCase:
    """One case: what was run, what it can't do without, and its repeats in the order they were measured."""

    kind: Literal["component_case"] = "component_case"
    schema_version: int = SCHEMA_VERSION
    name: str
    """Unique in the file; cases of two files are compared by it."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Shapes and sizes."""
    work: dict[str, float] = field(default_factory=dict)
    """The least that one run must do, by ceiling, in the unit of `ComponentRepeat.rates`. Empty: none is known."""
    repeats: tuple[ComponentRepeat, ...]
    note: str | None = None


ComponentLine = ComponentHeader | ComponentCase | Note | End


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentRun:
    """Everything that one component's results file holds, in the order it was written."""

    header: ComponentHeader
    cases: tuple[ComponentCase, ...] = ()
    notes: tuple[Note, ...] = ()
    ends: tuple[End, ...] = ()
    damage: tuple[str, ...] = ()
    """What could not be read, one sentence each."""

    @property
    def is_complete(self) -> bool:
        """Whether the last thing the file says is that the run completed."""
        return bool(self.ends) and self.ends[-1].outcome == "complete"
