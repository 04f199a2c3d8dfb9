"""Every rule on every run: findings in order, and where the time of a step goes."""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.diagnosis.attribution import Attribution, attributions
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Finding, in_order
from deepdraft.diagnosis.rules import RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What one run shows."""

    name: str
    num_points: int
    findings: tuple[Finding, ...]
    """Impossible and contradictory results first, then by worth, open questions last."""
    attributions: tuple[Attribution, ...]
    """By growing context length; empty where the model or the device is not known."""


def findings_of(case: Case) -> tuple[Finding, ...]:
    """What all rules say of a case, in order."""
    return in_order(finding for rule in RULES for finding in rule.find(case))


def explanation(case: Case) -> Explanation:
    """Findings and attribution of a case."""
    return Explanation(
        name=case.name,
        num_points=len(case.points),
        findings=findings_of(case),
        attributions=attributions(case),
    )
