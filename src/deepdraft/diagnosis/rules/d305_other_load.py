"""Other requests on the server meanwhile.

What it sees: the background_load guard's verdict at each point.
Why it matters: another user's prefill in the middle of a decode doubles its step time.
Evidence needed: the server's counters or load.
Remedy: measure it alone.
When it is wrong: health checks that count as requests.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Finding
from deepdraft.diagnosis.guarded import guard_findings

CODE = "D305"
NAME = "other_load"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    return guard_findings(
        case,
        guard="background_load",
        code=CODE,
        name=NAME,
        summary="Others used the server",
        remedy="Measure again while nobody else uses the server.",
    )
