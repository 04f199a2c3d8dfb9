"""Two figures of acceptance that can't both be true.

What it sees: everything that is said of tokens a step at one point (commit length, accepted depth + 1, counts,
histogram, the engine's own mean), brought to committed tokens a step.
Why it matters: whether the drafter helps is read from these figures; one of them is about something else.
Evidence needed: two sources at one point, more than 25 % apart.
Remedy: read counts of each request, not gauges or averages of the server's life.
When it is wrong: sources that cover different requests, or an answer of a few steps whose last was cut short.
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import is_contradictory, is_read_too_seldom, statements
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import plain

CODE = "D201"
NAME = "acceptance_contradiction"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the point whose sources are furthest apart, and how many others."""
    bad = [point for point in case.points if is_contradictory(point)]
    if not bad:
        return ()
    by_point = {id(point): statements(point) for point in bad}
    worst = max(bad, key=lambda point: max(each.tokens_per_step for each in by_point[id(point)]))
    said = by_point[id(worst)]
    low, high = min(said, key=lambda each: each.tokens_per_step), max(said, key=lambda each: each.tokens_per_step)
    others = f" (and at {len(bad) - 1} other points)" if len(bad) > 1 else ""
    seldom = (
        " One of them may be a gauge that did not move during so short an answer."
        if is_read_too_seldom(case, worst)
        else ""
    )
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="error",
            summary=f"At {worst.name}{others} two figures contradict each other: {low.name} says "
            f"{plain(low.tokens_per_step, 3)} committed tokens a step, {high.name} says "
            f"{plain(high.tokens_per_step, 3)}. A step commits its accepted drafts and one token more, so both "
            f"can't hold; whether the drafter helps can't be read from either.{seldom}",
            evidence=tuple(
                Evidence(name=each.name, value=each.tokens_per_step, unit="tokens/step", source=worst.name)
                for each in said
            ),
            remedy=f"Count verify steps and accepted drafts of each request: {case.say('request_acceptance')}.",
        ),
    )
