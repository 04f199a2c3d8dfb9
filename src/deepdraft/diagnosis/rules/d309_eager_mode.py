"""Speculation judged in eager mode.

What it sees: settings that turn CUDA graphs off, beside a drafter.
Why it matters: without graphs launches dominate a step; a chain and a tree then look alike (70.9 and 70.7 tok/s) and
differ by a third with graphs (144.9 and 99.1).
Evidence needed: the server's settings.
Remedy: measure with graphs on.
When it is wrong: a service that really runs so.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.mode import is_eager

CODE = "D309"
NAME = "eager_mode"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    if case.speculates is False or not is_eager(case):
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="unknown",
            summary="This was measured in eager mode (no CUDA graphs): what a drafter or a tree "
            "gains with graphs can't be decided from it.",
            evidence=(Evidence(name="CUDA graphs", value="off", source="the server's settings"),),
            remedy=f"Measure again: {case.say('cuda_graph')}.",
        ),
    )
