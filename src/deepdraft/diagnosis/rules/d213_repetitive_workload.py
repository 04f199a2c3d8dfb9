"""A text that flatters (or distorts) the drafter.

What it sees: prompts of repeated or random text beside a drafter.
Why it matters: repeated text is easy to draft: acceptance on it is no forecast for what people send.
Evidence needed: what was sent, as recorded or as the source says.
Remedy: measure with natural text.
When it is wrong: the service's own texts are as repetitive.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.guards import point_evidence, text_label

CODE = "D213"
NAME = "repetitive_workload"
_WORDS = {"repetitive": "repetitive", "repeated": "repetitive", "random": "random"}


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    nature = _nature(case)
    if case.speculates is False or nature is None:
        return ()
    effect = "flatters" if nature == "repetitive" else "distorts"
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"The text was {nature}, which {effect} what a drafter gives: decode rates and acceptance here "
            "are no forecast for natural text.",
            evidence=(Evidence(name="text", value=nature, source="as recorded"),),
            remedy="Measure again with natural text (deepdraft sweep --text prose).",
        ),
    )


def _nature(case: Case) -> str | None:
    for point in case.points:
        if point.point.reported is None:
            label = text_label(point_evidence(case.run, point.point, ()))
            if label.nature is not None:
                return label.nature
    said = " ".join(point.workload or "" for point in case.points).lower()
    return next((nature for word, nature in _WORDS.items() if word in said), None)
