"""What attention over paged KV is given: where each request's queries and cached rows are, and one layer's cache.

Shape letters: T query rows of all requests together, R requests, P pages listed, S slots of the pool (pages x page
size), Hq query heads, Hk key/value heads, Dk and Dv widths of a key and a value. Layout and names of the page lists
are FlashInfer's (CSR, int32).
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class LayerKv:
    """One layer's cache. Latent attention has Hk = 1 and its values are the first Dv columns of its keys."""

    keys: Tensor
    """[S, Hk, Dk]"""
    values: Tensor
    """[S, Hk, Dv]; a view of `keys` where the cache is latent."""
    is_latent: bool


@dataclass(frozen=True, slots=True)
class SlotRun:
    """Slots start, start + 1, ... start + num_slots - 1 that hold consecutive tokens of one request."""

    start: int
    num_slots: int


@dataclass(frozen=True, eq=False)
class AttentionPlan:
    """Queries and page lists of one forward pass; the same for every layer.

    Request r has query rows qo_indptr[r] : qo_indptr[r + 1], which are its LAST tokens: their own KV rows are in the
    cache already. Its cached tokens, queries included, are the first kv_lens[r] slots of its pages
    kv_indices[kv_indptr[r] : kv_indptr[r + 1]]. Every query sees the prefix (the tokens before the first query);
    among the queries themselves query i sees j when j <= i, or, where the request has a tail mask, when
    tail_mask[i, j].
    """

    page_size: int
    query_lens: tuple[int, ...]
    kv_lens: tuple[int, ...]
    pages: tuple[array[int], ...]
    """Per request, int32: no more than its tokens fill"""
    tail_masks: tuple[Tensor | None, ...]
    """Per request None (causal) or bool [q, q] with q = query_lens[r]; the diagonal is True (a node sees itself)."""
    device: torch.device

    @classmethod
    def of(
        cls,
        *,
        page_size: int,
        query_lens: Sequence[int],
        kv_lens: Sequence[int],
        pages: Sequence[Sequence[int]],
        tail_masks: Sequence[Tensor | None] | None = None,
        device: torch.device | None = None,
    ) -> AttentionPlan:
        """Check the lengths against each other and build the plan. Raises ValueError where they contradict.

        The pages are copied: what is listed later is not in the plan. Pages in an array("i") are copied as memory, so
        that a long context costs no step of Python for each.
        """
        if not len(query_lens) == len(kv_lens) == len(pages):
            raise ValueError("query_lens, kv_lens and pages must name the same requests")
        for query_len, kv_len, listed in zip(query_lens, kv_lens, pages, strict=True):
            if not 0 < query_len <= kv_len:
                raise ValueError(f"{query_len} queries of {kv_len} cached tokens")
            if len(listed) * page_size < kv_len:
                raise ValueError(f"{len(listed)} pages of {page_size} can't hold {kv_len} tokens")
        masks = tuple(tail_masks) if tail_masks is not None else (None,) * len(query_lens)
        needed = [-(-kv_len // page_size) for kv_len in kv_lens]
        return cls(
            page_size,
            tuple(query_lens),
            tuple(kv_lens),
            tuple(_listed(listed[:count]) for listed, count in zip(pages, needed, strict=True)),
            masks,
            device or torch.device("cpu"),
        )

    @cached_property
    def qo_indptr(self) -> Tensor:
        """int32 [R + 1]"""
        return torch.tensor([0, *accumulate(self.query_lens)], dtype=torch.int32, device=self.device)

    @cached_property
    def kv_indptr(self) -> Tensor:
        """int32 [R + 1], counted in pages"""
        counts = [len(listed) for listed in self.pages]
        return torch.tensor([0, *accumulate(counts)], dtype=torch.int32, device=self.device)

    @cached_property
    def kv_indices(self) -> Tensor:
        """int32 [P]"""
        listed = [_page_tensor(pages) for pages in self.pages]
        return torch.cat(listed or [torch.empty(0, dtype=torch.int32)]).to(self.device)

    @cached_property
    def kv_last_page_len(self) -> Tensor:
        """int32 [R], between 1 and page_size"""
        lens = [(kv_len - 1) % self.page_size + 1 for kv_len in self.kv_lens]
        return torch.tensor(lens, dtype=torch.int32, device=self.device)

    @cached_property
    def query_rows(self) -> tuple[tuple[int, int], ...]:
        """First and last + 1 query row of each request, on the host."""
        return tuple(pairwise((0, *accumulate(self.query_lens))))

    @cached_property
    def slots(self) -> tuple[Tensor, ...]:
        """Each request's cached tokens as slot numbers, int64 [kv_len]."""
        within = torch.arange(self.page_size, device=self.device)
        return tuple(
            (self.page_tensor(request)[:, None] * self.page_size + within).reshape(-1)[:kv_len]
            for request, kv_len in enumerate(self.kv_lens)
        )

    def page_tensor(self, request: int) -> Tensor:
        """One request's pages: int64."""
        return _page_tensor(self.pages[request]).to(self.device, torch.int64)


def _listed(pages: Sequence[int]) -> array[int]:
    """An array of its own; `pages` is a copy already where it is an array."""
    return pages if isinstance(pages, array) else array("i", pages)


def _page_tensor(pages: array[int]) -> Tensor:
    """int32, on the array's own memory; a plan's arrays never change."""
    return torch.frombuffer(pages, dtype=torch.int32)
