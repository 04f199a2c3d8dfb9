"""What a diagnosis says: findings with evidence, a remedy, and hypotheses about the cause.

A finding states what the data show. Why it is so is a hypothesis, kept apart: it says how far the data support it,
what it predicts, and the one experiment that would decide it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info", "unknown"]
"""error: figures that can't be true, or contradict each other. warning: something costs much, or a figure misleads.
info: a property of the server worth knowing. unknown: the question is raised, and these data can't answer it."""

Support = Literal["strong", "some", "weak", "against"]
"""How far the data support a hypothesis. Never "proven": the experiment decides."""

_BY_SEVERITY: tuple[Severity, ...] = ("error", "warning", "info", "unknown")
_BY_SUPPORT: tuple[Support, ...] = ("strong", "some", "weak", "against")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One figure a finding rests on."""

    name: str
    value: float | str
    unit: str = ""
    source: str = ""
    """Where it comes from: a point, a formula, a setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A possible cause."""

    name: str
    support: Support
    why: str
    """What in the data speaks for or against it."""
    prediction: str
    """What would be seen if it holds."""
    experiment: str
    """The one experiment that decides, in the engine's own flags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing the data show, or one question they leave open."""

    code: str
    name: str
    severity: Severity
    summary: str
    evidence: tuple[Evidence, ...] = ()
    remedy: str = ""
    """What to do, in the engine's own flags; of an unknown finding which measurement would tell."""
    hypotheses: tuple[Hypothesis, ...] = ()
    worth: float = 1.0
    """About how many times faster what it touches could be at the longest context; 1: nothing to win, or unknown."""


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Impossible and contradictory results first, then by what they are worth, open questions last."""
    return tuple(sorted(findings, key=lambda each: (_BY_SEVERITY.index(each.severity), -each.worth, each.code)))


def by_support(hypotheses: Iterable[Hypothesis]) -> tuple[Hypothesis, ...]:
    """Best supported first."""
    return tuple(sorted(hypotheses, key=lambda each: _BY_SUPPORT.index(each.support)))
