"""Which queries see which tokens, as arrays that C reads.

Letters as in `plan`; q queries of one request, n tokens.
"""

from __future__ import annotations

import ctypes
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import torch
from torch import Tensor

from deepdraft.infer.kernels.plan import AttentionPlan


@dataclass(frozen=True, slots=True, eq=False)
class Lists:
    """The lists of attention.h. Arrays are int32, and are not changed."""

    page_size: int
    qo_indptr: array[int]
    kv_indptr: array[int]
    kv_indices: array[int]
    kv_lens: array[int]
    prefix_lens: array[int]
    tail_masks: ctypes.Array[ctypes.c_void_p]
    masks: tuple[Tensor | None, ...]
    """What tail_masks points to"""
    fields: Mapping[str, int] = field(init=False)
    """By name, what `library.Attention` says of these lists, made once for all layers; the addresses last as long as
    this object."""

    def __post_init__(self) -> None:
        names = ("qo_indptr", "kv_indptr", "kv_indices", "kv_lens", "prefix_lens")
        addresses = {name: getattr(self, name).buffer_info()[0] for name in names}
        sizes = {"num_requests": len(self.kv_lens), "page_size": self.page_size}
        found = {**addresses, **sizes, "tail_masks": ctypes.addressof(self.tail_masks)}
        object.__setattr__(self, "fields", found)  # frozen, and this follows from the rest


def lists_of(plan: AttentionPlan) -> Lists:
    """A plan's requests."""
    kv_indices = array("i")
    for pages in plan.pages:
        kv_indices.extend(pages)
    prefix_lens = [kv_len - query_len for kv_len, query_len in zip(plan.kv_lens, plan.query_lens, strict=True)]
    return _lists(
        plan.page_size,
        query_lens=plan.query_lens,
        page_counts=[len(pages) for pages in plan.pages],
        kv_indices=kv_indices,
        kv_lens=plan.kv_lens,
        prefix_lens=prefix_lens,
        tail_masks=plan.tail_masks,
    )


def lists_of_rows(query_len: int, num_tokens: int, *, is_tail: bool, mask: Tensor | None) -> Lists:
    """q queries of one request over n rows that lie side by side: all seen by each query, or the queries' own tokens,
    seen as the bool [q, q] mask says (None: causal)."""
    return _lists(
        num_tokens,
        query_lens=[query_len],
        page_counts=[1],
        kv_indices=array("i", [0]),
        kv_lens=[num_tokens],
        prefix_lens=[0 if is_tail else num_tokens],
        tail_masks=[mask],
    )


def _lists(
    page_size: int,
    *,
    query_lens: Sequence[int],
    page_counts: Sequence[int],
    kv_indices: array[int],
    kv_lens: Sequence[int],
    prefix_lens: Sequence[int],
    tail_masks: Sequence[Tensor | None],
) -> Lists:
    masks = tuple(None if mask is None else mask.to("cpu", torch.bool).contiguous() for mask in tail_masks)
    addresses = (None if mask is None else mask.data_ptr() for mask in masks)
    return Lists(
        page_size,
        array("i", (0, *accumulate(query_lens))),
        array("i", (0, *accumulate(page_counts))),
        kv_indices,
        array("i", kv_lens),
        array("i", prefix_lens),
        (ctypes.c_void_p * len(masks))(*addresses),
        masks,
    )
