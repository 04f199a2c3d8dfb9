"""The frontier of a plan: how long each of so many concurrent requests may be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepdraft.planner.plan import Plan

_SHORTEST = 1_000
"""Shorter requests than these are nobody's question here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontierPoint:
    """One number of requests."""

    num_requests: int
    context_len: int
    """The most tokens that each of them may hold at once, prompt and answer."""
    bound_by: str
    """"context limit" or "KV pool"."""


def longest_each(plan: Plan, num_requests: int) -> int:
    """Tokens that each of so many requests may hold, by the pool alone.

    SGLang, llama.cpp: the pool's tokens shared out. vLLM: its bytes, less what every request holds whatever its
    length, over the bytes of a token, as its printed pool is no capacity for hybrid models.
    """
    if num_requests < 1:
        raise ValueError("a frontier begins at one request")
    if plan.engine != "vllm" or not plan.bytes_per_sequence:
        return plan.kv_pool_tokens // num_requests
    share = plan.ledger.total_bytes("pool") / num_requests - plan.bytes_per_sequence
    if not plan.bytes_per_token:
        return plan.max_context_len if share >= 0 else 0
    return max(0, int(share / plan.bytes_per_token))


def frontier(plan: Plan, nums_requests: Sequence[int] | None = None) -> tuple[FrontierPoint, ...]:
    """A point for each number of requests; by default 1, 2, 4 ... and the cap itself, as long as each may hold 1,000
    tokens. Numbers beyond the cap on requests are left out."""
    wanted = nums_requests if nums_requests is not None else _doubling(plan.max_running_requests)
    points: list[FrontierPoint] = []
    for num_requests in wanted:
        if num_requests > plan.max_running_requests:
            continue
        by_pool = longest_each(plan, num_requests)
        context_len = min(by_pool, plan.max_request_tokens)
        if context_len < _SHORTEST and nums_requests is None and points:
            break
        bound_by = "KV pool" if by_pool < plan.max_context_len else "context limit"
        points.append(FrontierPoint(num_requests=num_requests, context_len=context_len, bound_by=bound_by))
    return tuple(points)


def _doubling(most: int) -> tuple[int, ...]:
    nums = []
    num_requests = 1
    while num_requests < most:
        nums.append(num_requests)
        num_requests *= 2
    return (*nums, max(most, 1))
