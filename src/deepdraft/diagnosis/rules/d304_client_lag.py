"""A client that was itself the limit.

What it sees: the client_lag guard's verdict at each point.
Why it matters: a stamp taken late is the client's latency, reported as the server's.
Evidence needed: the client's recorded lag.
Remedy: a faster or less busy client.
When it is wrong: lag at a moment when no event was due.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Finding
from deepdraft.diagnosis.guarded import guard_findings

CODE = "D304"
NAME = "client_lag"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    return guard_findings(
        case,
        guard="client_lag",
        code=CODE,
        name=NAME,
        summary="The client was late",
        remedy="Run the sweep from a machine with idle cores, or at a lower concurrency.",
    )
