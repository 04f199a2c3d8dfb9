"""Acceptance that is lower where the prompt came from the prefix cache.

What it sees: the acceptance length of cached and of cold prompts of one length.
Why it matters: a cached prefix has the target's KV but may have no draft features; the drafter then drafts blindly.
Evidence needed: cold and cached points of the same length (within 5 %), more than 15 % apart.
Remedy: keep draft KV or features with the prefix cache (an engine's matter); report both figures apart.
When it is wrong: the two passes had different texts.
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import trusted_acceptance_len
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import plain
from deepdraft.diagnosis.pairing import SAME_LEN_FRAC

CODE = "D214"
NAME = "acceptance_lower_on_hits"
MIN_FALL_FRAC = 0.15


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the largest fall."""
    known = [(point, trusted_acceptance_len(case, point)) for point in case.points]
    falls = [
        (cold, hit, cold_len, hit_len)
        for hit, hit_len in known
        if hit.is_hit and hit_len is not None
        for cold, cold_len in known
        if not cold.is_hit
        and cold_len is not None
        and abs(cold.context_len - hit.context_len) <= SAME_LEN_FRAC * hit.context_len
        and hit_len < (1 - MIN_FALL_FRAC) * cold_len
    ]
    if not falls:
        return ()
    cold, hit, cold_len, hit_len = max(falls, key=lambda each: each[2] / each[3])
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"At {hit.name} a step commits {plain(hit_len, 3)} tokens when the prompt is cached and "
            f"{plain(cold_len, 3)} when it is cold: the cached prefix probably has no draft features.",
            evidence=(
                Evidence(name="acceptance_len cold", value=cold_len, unit="tokens", source=cold.name),
                Evidence(name="acceptance_len cached", value=hit_len, unit="tokens", source=hit.name),
            ),
            remedy="Use an engine build that keeps draft KV beside the cached prefix; until then count on the "
            "lower figure where prompts repeat.",
            worth=cold_len / hit_len,
        ),
    )
