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
from deepdraft.diagnosis.guarded import as_evidence, places, violations

CODE = "D304"
NAME = "client_lag"
_GUARD = "client_lag"


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
            summary=f"The client was late at {places(found)}: {found[0][1]}.",
            evidence=as_evidence(_GUARD, found),
            remedy="Run the sweep from a machine with idle cores, or at a lower concurrency.",
        ),
    )
