"""A plan's lists where the kernels read them: on the device, in tensors whose sizes are maxima.

A CUDA graph is captured once with lists of fixed maxima and replayed after `load` has put another plan into the same
memory; without a graph the maxima are the plan's own. All lists are views of one block, so that a step's are one copy
from the host.

Letters as in `plan`; W words of 64 tail columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from deepdraft.infer.kernels.plan import AttentionPlan

WORD_BITS = 64
ALIGNED_WORDS = 2
"""Each list starts at a multiple of 16 bytes, which the kernels are compiled for."""


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
    on_device: Block
    on_host: Block

    @classmethod
    def empty(cls, maxima: Maxima, *, page_size: int, device: torch.device) -> DeviceLists:
        """Lists of no requests."""
        return cls(maxima, page_size, Block.of(maxima, device), Block.of(maxima, torch.device("cpu")))

    @classmethod
    def of(cls, plan: AttentionPlan) -> DeviceLists:
        """A plan's lists, with no room for more."""
        lists = cls.empty(Maxima.of(plan), page_size=plan.page_size, device=plan.device)
        lists.load(plan)
        return lists

    @property
    def qo_indptr(self) -> Tensor:
        """int32 [max R + 1]"""
        return self.on_device.qo_indptr

    @property
    def kv_indptr(self) -> Tensor:
        """int32 [max R + 1], counted in pages"""
        return self.on_device.kv_indptr

    @property
    def kv_indices(self) -> Tensor:
        """int32 [max P]"""
        return self.on_device.kv_indices

    @property
    def kv_lens(self) -> Tensor:
        """int32 [max R]"""
        return self.on_device.kv_lens

    @property
    def tail_bits(self) -> Tensor:
        """int64 [max T, W]: bit j % 64 of word j // 64 says whether the query sees its request's query j"""
        return self.on_device.tail_bits

    def load(self, plan: AttentionPlan) -> None:
        """Put a plan's lists in place of these. Raises ValueError without room, or for another page size."""
        wanted = Maxima.of(plan)
        if plan.page_size != self.page_size:
            raise ValueError(f"pages of {plan.page_size} tokens for lists of pages of {self.page_size}")
        if not self.maxima.has_room_for(wanted):
            raise ValueError(f"{wanted} exceeds {self.maxima}")
        num_requests, host = wanted.num_requests, self.on_host
        host.qo_indptr[: num_requests + 1] = _int32([0, *accumulate(plan.query_lens)])
        host.qo_indptr[num_requests + 1 :] = wanted.num_rows
        host.kv_indptr[: num_requests + 1] = _int32([0, *accumulate(map(len, plan.pages))])
        host.kv_lens[:num_requests] = _int32(plan.kv_lens)
        host.kv_lens[num_requests:] = 0
        host.tail_bits[: wanted.num_rows] = tail_bits(plan, host.tail_bits.shape[1])
        listed = host.kv_indices.numpy()
        stop = 0
        for pages in plan.pages:
            start, stop = stop, stop + len(pages)
            listed[start:stop] = pages
        # The pages come last: of them only those that are listed are copied.
        num_words = host.words.numel() - (host.kv_indices.numel() - stop) // 2
        self.on_device.words[:num_words].copy_(host.words[:num_words])


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Memory for the lists of one step, and the lists as views of it."""

    words: Tensor
    """int64"""
    tail_bits: Tensor
    qo_indptr: Tensor
    kv_indptr: Tensor
    kv_lens: Tensor
    kv_indices: Tensor

    @classmethod
    def of(cls, maxima: Maxima, device: torch.device) -> Block:
        """Zeros."""
        num_requests, num_tail_words = maxima.num_requests, max(1, -(-maxima.query_len // WORD_BITS))
        bits_size = maxima.num_rows * num_tail_words
        lens = (num_requests + 1, num_requests + 1, max(1, num_requests), max(1, maxima.num_pages))
        word_sizes = [_aligned(bits_size), *(_aligned(-(-length // 2)) for length in lens)]
        words = torch.zeros(sum(word_sizes), dtype=torch.int64, device=device)
        bits, *lists = words.split_with_sizes(word_sizes)
        shortened = (listed.view(torch.int32)[:length] for listed, length in zip(lists, lens, strict=True))
        return cls(words, bits[:bits_size].view(maxima.num_rows, num_tail_words), *shortened)


def tail_bits(plan: AttentionPlan, num_words: int) -> Tensor:
    """int64 [T, num_words] on the CPU: each query's row of its request's tail mask, causal where there is none."""
    bits = np.zeros((sum(plan.query_lens), num_words * WORD_BITS // 8), dtype=np.uint8)
    for (first, stop), mask in zip(plan.query_rows, plan.tail_masks, strict=True):
        seen = np.tri(stop - first, dtype=np.bool_) if mask is None else mask.cpu().numpy()
        packed = np.packbits(seen, axis=1, bitorder="little")
        bits[first:stop, : packed.shape[1]] = packed
    return torch.from_numpy(bits.view("<i8"))


def _int32(numbers: Sequence[int]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32)


def _aligned(num_words: int) -> int:
    return -(-num_words // ALIGNED_WORDS) * ALIGNED_WORDS
