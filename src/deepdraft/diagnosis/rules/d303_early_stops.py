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
from deepdraft.diagnosis.guarded import guard_findings

CODE = "D303"
NAME = "early_stops"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    return guard_findings(
        case,
        guard="early_stop",
        code=CODE,
        name=NAME,
        summary="Answers ended early",
        remedy="Measure with ignore_eos where the server takes it, or with a prompt that asks for a long answer.",
    )
