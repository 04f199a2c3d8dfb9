"""Several short requests padded to one length and attended to together: one by one, Python would cost more than they.

A request is padded with its own first token, hidden by the mask. So none ever reads another's rows, or slots that
were never written: a NaN there would pass through a weight of 0.

Letters as in `plan`; B requests of a group, t query rows of each, N tokens that each is padded to, G query heads that
share a key head.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kernels.segment import PageList

MAX_QUERY_LEN = 64
"""Longer ones are prompts, where a kernel that knows the causal order halves the work."""
MAX_WASTE = 1.5
"""Longest over shortest of a group."""
MAX_SCORES = 1 << 18
"""B * G * t * N, the size of the mask, which is made anew for each step."""


@dataclass(frozen=True, slots=True, eq=False)
class PaddedGroup:
    """B requests with as many queries each."""

    num_requests: int
    query_rows: Tensor
    """int64 [B * t], of the batch's T"""
    slots: PageList
    """B * N, request by request"""
    mask: Tensor
    """float32 [B, 1, G * t, N]: 0 where seen, else -inf"""


def groups(plan: AttentionPlan, *, group_size: int, max_tokens: int) -> Iterator[tuple[int, ...]]:
    """The plan's requests, those of one group being worth padding; a request not worth it is alone.

    At most max_tokens = B * N. group_size is G.
    """
    held: list[int] = []
    for request in sorted(range(len(plan.kv_lens)), key=lambda r: (plan.query_lens[r], plan.kv_lens[r])):
        if held and not is_padded(plan, (*held, request), group_size=group_size, max_tokens=max_tokens):
            yield tuple(held)
            held = []
        held.append(request)
    if held:
        yield tuple(held)


def is_padded(plan: AttentionPlan, requests: Sequence[int], *, group_size: int, max_tokens: int) -> bool:
    """Whether these requests, shortest first, are better read together than one by one. A lone one is if that saves
    it the merging of a prefix and a tail."""
    query_len, num_tokens = plan.query_lens[requests[-1]], len(requests) * plan.kv_lens[requests[-1]]
    return (
        plan.query_lens[requests[0]] == query_len <= MAX_QUERY_LEN
        and (len(requests) > 1 or query_len > 1)
        and plan.kv_lens[requests[-1]] <= MAX_WASTE * plan.kv_lens[requests[0]]
        and num_tokens <= max_tokens
        and num_tokens * query_len * group_size <= MAX_SCORES
    )


def padded_group(plan: AttentionPlan, requests: Sequence[int], *, group_size: int) -> PaddedGroup:
    """These requests together; group_size is G."""
    device, page_size = plan.device, plan.page_size
    query_len, padded_len = plan.query_lens[requests[0]], max(plan.kv_lens[request] for request in requests)
    num_pages = -(-padded_len // page_size)
    tables = [[*plan.pages[request], *[0] * (num_pages - len(plan.pages[request]))] for request in requests]
    within = torch.arange(page_size, device=device)
    slots = (torch.tensor(tables, device=device).unsqueeze(-1) * page_size + within).flatten(1)[:, :padded_len]
    tokens = torch.arange(padded_len, device=device)
    kv_lens = torch.tensor([plan.kv_lens[request] for request in requests], device=device).unsqueeze(-1)
    slots = torch.where(tokens < kv_lens, slots, slots[:, :1])
    positions = kv_lens - query_len + torch.arange(query_len, device=device)
    seen = tokens <= positions.unsqueeze(-1)
    for row, request in zip(seen, requests, strict=True):
        tail = plan.tail_masks[request]
        if tail is not None:
            row[:, plan.kv_lens[request] - query_len : plan.kv_lens[request]] = tail
    mask = torch.zeros(seen.shape, device=device).masked_fill_(~seen, float("-inf"))
    rows = torch.tensor([row for request in requests for row in range(*plan.query_rows[request])], device=device)
    return PaddedGroup(
        len(requests), rows, PageList(slots.flatten(), 1, slots.numel()), mask.repeat(1, group_size, 1).unsqueeze(1)
    )
