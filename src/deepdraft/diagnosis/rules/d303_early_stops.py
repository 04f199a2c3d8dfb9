"""Answers that ended before the tokens asked for.

What it sees: the early_stop guard's verdict at each point.
Why it matters: decode figures then rest on fewer tokens, a different number in each request.
Evidence needed: token counts of the answers.
Remedy: keep the server from stopping.
When it is wrong: a measurement of real answers, which end by themselves.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Finding
from deepdraft.diagnosis.guarded import as_evidence, places, violations

CODE = "D303"
NAME = "early_stops"
_GUARD = "early_stop"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    found = violations(case, _GUARD)
    if not found:
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"Answers ended early at {places(found)}: {found[0][1]}.",
            evidence=as_evidence(_GUARD, found),
            remedy="Measure with ignore_eos where the server takes it, or with a prompt that asks for a long answer.",
        ),
    )
