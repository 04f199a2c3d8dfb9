"""Counts of speculation that cover more tokens than the answer has.

What it sees: accepted drafts + verify steps of one request against its completion tokens - 1 (each verify step
commits its accepted drafts and one token; the first token comes from the prefill).
Why it matters: counts that don't add up cover other requests too, and every figure made of them is off.
Evidence needed: steps and accepted drafts of a request, and its completion tokens.
Remedy: read the counts of each request.
When it is wrong: a last step cut short by the token limit: as many drafts as a step can hold are allowed for.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.metrics import output_tokens
from deepdraft.metrics.speculation import step_counts
from deepdraft.records import Acceptance

CODE = "D206"
NAME = "committed_tokens_mismatch"
DEFAULT_CUT_LEN = 16
"""Drafts that a cut last step may hold where the counts don't tell the draft length."""


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the request that is furthest off."""
    bad = []
    for point in case.points:
        for sample in point.point.samples:
            acceptance, length = sample.request.acceptance, output_tokens(sample.request.trace)
            if acceptance is None or length is None or acceptance.is_lifetime_average:
                continue
            counts = step_counts(acceptance)
            if counts.num_verify_steps is None or counts.num_accepted is None:
                continue
            excess = counts.num_verify_steps + counts.num_accepted - (length - 1)
            if excess > _cut_len(acceptance, counts.num_verify_steps):
                bad.append((excess, point, counts, length))
    if not bad:
        return ()
    excess, point, counts, length = max(bad, key=lambda each: each[0])
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="error",
            summary=f"At {point.name} the counts of a request add up to {excess:,} tokens more than it has: "
            f"{counts.num_verify_steps:,} verify steps and {counts.num_accepted:,} accepted drafts, for {length:,} "
            f"output tokens of which the first is the prefill's ({len(bad)} requests so).",
            evidence=(
                Evidence(name="num_steps", value=float(counts.num_verify_steps or 0), source="the server"),
                Evidence(name="num_accepted_tokens", value=float(counts.num_accepted or 0), source="the server"),
                Evidence(name="output tokens", value=float(length), source="the server's usage"),
            ),
            remedy=f"These counts cover other requests or other work: {case.say('request_acceptance')}.",
        ),
    )


def _cut_len(acceptance: Acceptance, num_steps: int) -> int:
    if acceptance.accepted_at_depth is not None:
        return len(acceptance.accepted_at_depth)
    if acceptance.accepted_len_histogram is not None:
        return len(acceptance.accepted_len_histogram)
    if acceptance.num_draft_tokens and num_steps:
        return -(-acceptance.num_draft_tokens // num_steps)
    return DEFAULT_CUT_LEN
