"""A plan's lists where the kernels read them: on the device, in tensors whose sizes are maxima.

A CUDA graph is captured once with lists of fixed maxima and replayed after `load` has put another plan into the same
memory; without a graph the maxima are the plan's own.

Letters as in `plan`; W words of 64 tail columns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deepdraft.infer.kernels.plan import AttentionPlan

WORD_BITS = 64


@dataclass(frozen=True, slots=True)
class Maxima:
    """The largest step that lists have room for. Grids and buffers follow from these alone."""

    num_requests: int
    num_rows: int
    """Query rows of all requests, T"""
    query_len: int
    kv_len: int
    num_pages: int
    """Pages listed, P"""

    @classmethod
    def of(cls, plan: AttentionPlan) -> Maxima:
        """A plan's own."""
        return cls(
            len(plan.kv_lens),
            sum(plan.query_lens),
            max(plan.query_lens, default=0),
            max(plan.kv_lens, default=0),
            sum(map(len, plan.pages)),
        )

    def has_room_for(self, other: Maxima) -> bool:
        """Whether a step of that size fits."""
        return (
            other.num_requests <= self.num_requests
            and other.num_rows <= self.num_rows
            and other.query_len <= self.query_len
            and other.kv_len <= self.kv_len
            and other.num_pages <= self.num_pages
        )


@dataclass(frozen=True, eq=False)
class DeviceLists:
    """Lists of one step. Requests beyond the step's have no queries; query rows beyond its are no one's."""

    maxima: Maxima
    page_size: int
    qo_indptr: Tensor
    """int32 [max R + 1]"""
    kv_indptr: Tensor
    """int32 [max R + 1], counted in pages"""
    kv_indices: Tensor
    """int32 [max P]"""
    kv_lens: Tensor
    """int32 [max R]"""
    tail_bits: Tensor
    """int64 [max T, W]: bit j % 64 of word j // 64 says whether the query sees its request's query j"""

    @classmethod
    def empty(cls, maxima: Maxima, *, page_size: int, device: torch.device) -> DeviceLists:
        """Lists of no requests."""

        def zeros(*size: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(size, dtype=dtype, device=device)

        return cls(
            maxima,
            page_size,
            qo_indptr=zeros(maxima.num_requests + 1),
            kv_indptr=zeros(maxima.num_requests + 1),
            kv_indices=zeros(max(1, maxima.num_pages)),
            kv_lens=zeros(max(1, maxima.num_requests)),
            tail_bits=zeros(maxima.num_rows, max(1, -(-maxima.query_len // WORD_BITS)), dtype=torch.int64),
        )

    @classmethod
    def of(cls, plan: AttentionPlan) -> DeviceLists:
        """A plan's lists, with no room for more."""
        lists = cls.empty(Maxima.of(plan), page_size=plan.page_size, device=plan.device)
        lists.load(plan)
        return lists

    def load(self, plan: AttentionPlan) -> None:
        """Put a plan's lists in place of these. Raises ValueError without room, or for another page size."""
        wanted = Maxima.of(plan)
        if plan.page_size != self.page_size:
            raise ValueError(f"pages of {plan.page_size} tokens for lists of pages of {self.page_size}")
        if not self.maxima.has_room_for(wanted):
            raise ValueError(f"{wanted} exceeds {self.maxima}")
        num_requests, num_rows = wanted.num_requests, wanted.num_rows
        self.qo_indptr[: num_requests + 1] = plan.qo_indptr
        self.qo_indptr[num_requests + 1 :] = num_rows
        self.kv_indptr[: num_requests + 1] = plan.kv_indptr
        self.kv_indices[: wanted.num_pages] = plan.kv_indices
        self.kv_lens[:num_requests] = torch.tensor(plan.kv_lens, dtype=torch.int32)
        self.kv_lens[num_requests:] = 0
        self.tail_bits[:num_rows] = tail_bits(plan, self.tail_bits.shape[1]).to(self.tail_bits.device)


def tail_bits(plan: AttentionPlan, num_words: int) -> Tensor:
    """int64 [T, num_words] on the CPU: each query's row of its request's tail mask, causal where there is none."""
    own_index = torch.cat([torch.arange(query_len) for query_len in plan.query_lens or (0,)])
    first_bits = torch.arange(num_words) * WORD_BITS
    num_seen = (own_index[:, None] + 1 - first_bits).clamp(0, WORD_BITS)
    bits = torch.where(num_seen == WORD_BITS, -1, (1 << num_seen.clamp(max=WORD_BITS - 1)) - 1)
    for (first, stop), mask in zip(plan.query_rows, plan.tail_masks, strict=True):
        if mask is not None:
            bits[first:stop] = _packed(mask.cpu(), num_words)
    return bits


def _packed(mask: Tensor, num_words: int) -> Tensor:
    """bool [q, q] as int64 [q, num_words]"""
    padded = torch.zeros(len(mask), num_words * WORD_BITS, dtype=torch.int64)
    padded[:, : mask.shape[1]] = mask
    return (padded.view(len(mask), num_words, WORD_BITS) << torch.arange(WORD_BITS)).sum(dim=-1)
