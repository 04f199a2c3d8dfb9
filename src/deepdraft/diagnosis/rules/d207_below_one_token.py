"""Fewer tokens a step than one.

What it sees: an acceptance length (bonus token included) or tokens a step below 1.
Why it matters: a verify step always commits one token of the target's own, so the figure is another: accepted drafts
without the bonus, a rate, or nothing at all.
Evidence needed: the figure alone.
Remedy: find out its definition, or read counts.
When it is wrong: never as a statement about the figure; what it is instead can't be told from it.
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import statements
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import plain

CODE = "D207"
NAME = "below_one_token"
_SLACK = 0.005


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    bad = [(point, each) for point in case.points for each in statements(point) if each.tokens_per_step < 1 - _SLACK]
    if not bad:
        return ()
    point, said = min(bad, key=lambda each: each[1].tokens_per_step)
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="error",
            summary=f"At {point.name} {said.name} is {plain(said.tokens_per_step, 3)} tokens a step. A verify step "
            "commits at least one, so this is another figure (accepted drafts without the bonus token, a rate) or "
            "no figure at all; it is not used.",
            evidence=tuple(
                Evidence(name=each.name, value=each.tokens_per_step, unit="tokens/step", source=place.name)
                for place, each in bad
            ),
            remedy=f"Count verify steps and accepted drafts of each request: {case.say('request_acceptance')}.",
        ),
    )
