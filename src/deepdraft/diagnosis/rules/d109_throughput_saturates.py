"""Throughput that no longer grows with concurrency.

What it sees: output tokens a second of all requests against concurrency, at one length.
Why it matters: beyond that, more requests only wait: each gets slower and the sum stays.
Evidence needed: one length at two concurrencies or more.
Remedy: limit the concurrency there, or give the server what it lacks (pool, slots).
When it is wrong: trials too short for the load to settle; a client that is the limit (see D304).
"""

from __future__ import annotations

from itertools import pairwise

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import plain

CODE = "D109"
NAME = "throughput_saturates"
MIN_GAIN = 1.1
"""From one concurrency to the next, which is at least half as much again."""


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for each length that saturates."""
    by_len: dict[int, list[GuardedPoint]] = {}
    for point in case.points:
        if point.median("output_tok_s") is not None and not point.is_refuted("output_tok_s"):
            by_len.setdefault(point.point.asked_context_len, []).append(point)
    findings = []
    for points in by_len.values():
        points.sort(key=lambda each: each.point.concurrency)
        for few, many in pairwise(points):
            low, high = few.median("output_tok_s") or 0.0, many.median("output_tok_s") or 0.0
            if many.point.concurrency < 1.5 * few.point.concurrency or high >= MIN_GAIN * low:
                continue
            findings.append(_finding(case, few, many, low, high))
            break
    return tuple(findings)


def _finding(case: Case, few: GuardedPoint, many: GuardedPoint, low: float, high: float) -> Finding:
    pool = case.capabilities.kv_pool_tokens
    need = many.point.concurrency * many.context_len
    full = (
        f" The KV pool of {pool:,} tokens holds {pool // many.context_len} such prompts."
        if pool and need > pool
        else ""
    )
    return Finding(
        code=CODE,
        name=NAME,
        severity="info",
        summary=f"At {few.point.asked_context_len:,} tokens throughput stops growing at concurrency "
        f"{few.point.concurrency}: {plain(low, 3)} tok/s, and {plain(high, 3)} at {many.point.concurrency}.{full}",
        evidence=(
            Evidence(name="output_tok_s", value=low, unit="tok/s", source=few.name),
            Evidence(name="output_tok_s", value=high, unit="tok/s", source=many.name),
        ),
        remedy=f"Admit no more than {few.point.concurrency} at this length"
        + (f", or {case.say('pool_up')}." if full else "."),
    )
