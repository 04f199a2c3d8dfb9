"""Points of different texts in one table.

What it sees: points that say they were measured on different workloads.
Why it matters: with a drafter the text decides acceptance: a low rate at one length may be its text, not its length.
No law and no knee is read across workloads.
Evidence needed: what was sent at each point.
Remedy: one text at every length, several repeats.
When it is wrong: workloads named differently that are alike.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding

CODE = "D308"
NAME = "mixed_workloads"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding where the points of one figure differ in their workload."""
    mixed = case.mixed_workloads
    if not mixed:
        return ()
    workloads = dict.fromkeys(point.workload for point in mixed)
    effect = (
        "a drafter's acceptance depends on the text, so a change from one length to the next may be the text's"
        if case.speculates is not False
        else "a change from one length to the next may be the text's"
    )
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"The points were measured on {len(workloads)} different workloads: {effect}. No law, trend or "
            "knee is read across them.",
            evidence=tuple(
                Evidence(name="workload", value=point.workload or "", source=point.name) for point in mixed
            ),
            remedy="Measure every length on one text, three repeats each (deepdraft sweep does).",
        ),
    )
