"""Findings that pass on what a guard proved."""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding


def guard_findings(case: Case, *, guard: str, code: str, name: str, summary: str, remedy: str) -> tuple[Finding, ...]:
    """One finding for the run where that guard is violated: what is wrong, at which points, and the first one's
    sentence."""
    found = violations(case, guard)
    if not found:
        return ()
    return (
        Finding(
            code=code,
            name=name,
            severity="warning",
            summary=f"{summary} at {places(found)}: {found[0][1]}.",
            evidence=as_evidence(guard, found),
            remedy=remedy,
        ),
    )


def violations(case: Case, guard: str) -> tuple[tuple[str, str], ...]:
    """The points where that guard is violated, each with its sentence."""
    found = []
    for point in case.points:
        report = point.violation(guard)
        if report is not None:
            found.append((point.name, report.evidence))
    return tuple(found)


def as_evidence(guard: str, found: tuple[tuple[str, str], ...]) -> tuple[Evidence, ...]:
    """Those sentences as evidence."""
    return tuple(Evidence(name=guard, value=text, source=place) for place, text in found)


def places(found: tuple[tuple[str, str], ...]) -> str:
    """The points in a sentence: the first three by name."""
    names = [name for name, _ in found]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(names[:3]) + more
