"""Prompts that were served from the prefix cache.

What it sees: cached tokens in the answers or counters (the cold_prefix guard), or the source's word; and a TTFT far
below that of a shorter prompt, which is a suspicion.
Why it matters: a hit skips prefill: TTFT measures the cache. Such points are on no curve here.
Evidence needed: a server that tells cached tokens.
Remedy: cold prompts.
When it is wrong: a point that was meant to study hits.
"""

from __future__ import annotations

from itertools import pairwise

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.guarded import as_evidence, places, violations
from deepdraft.diagnosis.hypotheses.prefix_hit import prefix_hit
from deepdraft.units import seconds_text

CODE = "D301"
NAME = "prefix_hits"
FALL_FRAC = 0.7
"""A TTFT below this share of a shorter prompt's is suspect: prefill does not get faster as the prompt grows."""


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    proved = violations(case, "cold_prefix")
    said = tuple(
        (point.name, "prompts were in the prefix cache, by the source's word")
        for point in case.points
        if point.point.reported is not None and point.is_hit
    )
    found = (*proved, *said)
    if not found:
        return _suspected(case)
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"Prompts came from the prefix cache at {places(found)}: TTFT there measures the cache. These "
            "points are kept apart from the cold ones and are on no curve.",
            evidence=(*as_evidence("cold_prefix", found), Evidence(name="points", value=float(len(found)))),
            remedy=f"For cold figures {case.say('cold')}.",
        ),
    )


def _suspected(case: Case) -> tuple[Finding, ...]:
    """The first point whose TTFT is far below that of a shorter one, where its coldness is not verified."""
    curve = case.curve("ttft_s")
    for shorter, longer in pairwise(curve.points):
        verified = any(each.name == "cold_prefix" and each.state == "verified" for each in longer.guards)
        if verified or curve.value(longer) >= FALL_FRAC * curve.value(shorter):
            continue
        return (
            Finding(
                code=CODE,
                name=NAME,
                severity="warning",
                summary=f"TTFT falls from {seconds_text(curve.value(shorter))} at {shorter.name} to "
                f"{seconds_text(curve.value(longer))} at {longer.name}, though the prompt is longer: a prefix hit "
                "is suspected. Take TTFT there for nothing until it is measured cold.",
                evidence=(
                    Evidence(name="ttft_s", value=curve.value(shorter), unit="s", source=shorter.name),
                    Evidence(name="ttft_s", value=curve.value(longer), unit="s", source=longer.name),
                ),
                remedy=f"Measure it again cold: {case.say('cold')}.",
                hypotheses=(prefix_hit(case, longer),),
            ),
        )
    return ()
