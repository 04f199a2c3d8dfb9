"""A drafter whose drafts are hardly ever accepted.

What it sees: an acceptance length near 1 (bonus token included) at the longest context where it is known.
Why it matters: every verify step then costs a draft and a wider pass, and commits one token: the drafter only costs.
Evidence needed: an acceptance length whose sources agree and that was read of these requests; a server that did not
leave drafting off by itself (D216).
Remedy: serve such lengths without the drafter, or with fewer draft tokens; look for a drafter trained on long
context.
When it is wrong: the text of the measurement is unlike the one served (random words are hard to draft).
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import is_mostly_off, trusted_acceptance_len
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import plain

CODE = "D208"
NAME = "acceptance_near_floor"
NEAR_FLOOR = 1.25


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run; none where its sources contradict each other anywhere."""
    if case.speculates is False:
        return ()
    known = [
        (point, length)
        for point in case.points
        if not point.is_hit
        and not is_mostly_off(point)
        and (length := trusted_acceptance_len(case, point)) is not None
    ]
    if not known:
        return ()
    point, length = known[-1]
    if length > NEAR_FLOOR:
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"At {point.name} a verify step commits {plain(length, 3)} tokens; 1 is the floor, where no "
            "draft is accepted. The drafter costs a draft and a wider pass each step and gives almost nothing "
            "there.",
            evidence=(Evidence(name="acceptance_len", value=length, unit="tokens", source=point.name),),
            remedy=f"At this length {case.say('drafter_off')}, or {case.say('draft_len')}; a drafter trained on "
            "long context may do better.",
        ),
    )
