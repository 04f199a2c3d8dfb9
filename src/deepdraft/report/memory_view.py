"""One device's memory as figures and words, before anybody draws it. Whoever plans fills it in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Tone = Literal["safe", "tight", "fails"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPart:
    """One entry of a group."""

    name: str
    num_bytes: int
    certainty: str
    """exact, formula, estimate, measured."""
    source: str
    error_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """One segment of the bar."""

    label: str
    num_bytes: int
    parts: tuple[MemoryPart, ...] = ()
    kind: Literal["part", "free", "spike"] = "part"
    """free: what is left at rest. spike: what a prefill takes of it, drawn below."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierRow:
    """So many requests, each so long."""

    num_requests: int
    context_len: int
    bound_by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryView:
    """Everything the page shows."""

    title: str
    identity: str
    """Engine, version, flags: one line."""
    tone: Tone
    outcome: str
    summary: str
    facts: tuple[tuple[str, str, str], ...]
    """(label, figure, remark) of the cards."""
    device_bytes: int
    groups: tuple[MemoryGroup, ...]
    """In the order in which memory is taken; the free one and the spike last."""
    frontier: tuple[FrontierRow, ...]
    max_context_len: int
    advice: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
