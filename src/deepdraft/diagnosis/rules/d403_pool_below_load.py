"""A KV pool that does not hold the requests asked to run at once.

What it sees: concurrency x (prompt + answer) against the tokens of the pool.
Why it matters: the rest waits in the queue or is preempted; TTFT then holds the queue, and "concurrency 8" was less.
Evidence needed: the pool's size as the server states it.
Remedy: fewer at once, shorter prompts, a larger pool.
When it is wrong: prompts that share a prefix share its tokens.
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import decode_len
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.words import capital

CODE = "D403"
NAME = "pool_below_load"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the point with the largest load."""
    pool = case.capabilities.kv_pool_tokens
    if pool is None:
        return ()
    over = []
    for point in case.points:
        each = point.context_len + (decode_len(case, point) or 0)
        if point.point.concurrency * each > pool:
            over.append((point, each))
    if not over:
        return ()
    point, each = max(over, key=lambda both: both[0].point.concurrency * both[1])
    fits = pool // each
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"{point.point.concurrency} request{'s' if point.point.concurrency > 1 else ''} of {each:,} "
            f"tokens at once need {point.point.concurrency * each:,}, and the KV pool holds {pool:,}: {fits} "
            f"fit{'s' if fits == 1 else ''}, the rest waits or is preempted ({len(over)} points so).",
            evidence=(
                Evidence(name="kv_pool_tokens", value=float(pool), unit="tokens", source="the server"),
                Evidence(
                    name="needed", value=float(point.point.concurrency * each), unit="tokens", source=point.name
                ),
            ),
            remedy=f"{capital(case.say('pool_up'))}; or admit fewer at once ({case.say('max_running')}).",
        ),
    )
