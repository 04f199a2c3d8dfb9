"""What all layers of one forward pass share, made once per pass and given to each layer as an argument.

Shape letters: T tokens of the batch, Q query rows (T, or fewer in the last layer), D rotary dimensions.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kv.pool import PagePool


@dataclass(frozen=True, slots=True, eq=False)
class QueryGroup:
    """Queries of some of the requests and where their keys are."""

    rows: Tensor | None
    """int64, which of the Q query rows, ascending; None: all of them"""
    plan: AttentionPlan


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """The query rows of a layer. Requests with few and with many queries are apart where the layer wants it so."""

    rows: Tensor | None
    """int64 [Q], which of the T tokens are queries, ascending; None: all of them"""
    turns: Tensor
    """Complex [Q, 1, D / 2], the rotary turns of the query rows; the 1 broadcasts over heads"""
    few: QueryGroup | None
    many: QueryGroup | None

    def of(self, x: Tensor) -> Tensor:
        """The query rows of x [T, ...]."""
        return x if self.rows is None else x.index_select(0, self.rows)


@dataclass(frozen=True, slots=True, eq=False)
class ForwardPass:
    """One pass: where keys and values are written and how attention is computed."""

    slots: Tensor
    """int64 [T]"""
    turns: Tensor
    """Complex [T, D / 2]"""
    pool: PagePool
    attention: AttentionBackend


def all_queries(plan: AttentionPlan, turns: Tensor, many_from: int | None) -> Queries:
    """Every token is a query; turns [T, D / 2]. A request with at least `many_from` queries counts as one with many
    (None: none does)."""
    few, many = _split(plan, many_from)
    return Queries(None, turns.unsqueeze(1), few, many)


def narrowed_queries(
    plan: AttentionPlan, turns: Tensor, rows: Sequence[int], many_from: int | None
) -> Queries | None:
    """Only these rows (ascending) are queries: what the last layer needs to compute when few logits are wanted.

    A plan's queries are the last tokens of a request, so the rows must be the end of their request's queries; and a
    tail mask is left whole. None where that isn't so, or where nothing would be saved.
    """
    if len(rows) == turns.shape[0]:
        return None
    kept: list[tuple[int, int]] = []  # request, number of its query rows kept
    for request, (first, stop) in enumerate(plan.query_rows):
        at = bisect_left(rows, first)
        num_kept = bisect_left(rows, stop) - at
        is_tail = num_kept == 0 or rows[at] == stop - num_kept
        if not is_tail or (plan.tail_masks[request] is not None and 0 < num_kept < stop - first):
            return None
        if num_kept:
            kept.append((request, num_kept))
    chosen = torch.tensor(rows, dtype=torch.int64, device=turns.device)
    few, many = _split(_plan_of(plan, kept), many_from) if kept else (None, None)
    return Queries(chosen, turns.index_select(0, chosen).unsqueeze(1), few, many)


def _split(plan: AttentionPlan, many_from: int | None) -> tuple[QueryGroup | None, QueryGroup | None]:
    """Requests with few queries and with many; a group that has all of them needs no new plan."""
    is_many = [many_from is not None and query_len >= many_from for query_len in plan.query_lens]
    if not any(is_many):
        return QueryGroup(None, plan), None
    if all(is_many):
        return None, QueryGroup(None, plan)
    return _group(plan, is_many, False), _group(plan, is_many, True)


def _group(plan: AttentionPlan, is_many: Sequence[bool], wanted: bool) -> QueryGroup:
    requests = [request for request, many in enumerate(is_many) if many is wanted]
    rows = [row for request in requests for row in range(*plan.query_rows[request])]
    of_group = _plan_of(plan, [(request, plan.query_lens[request]) for request in requests])
    return QueryGroup(torch.tensor(rows, dtype=torch.int64, device=plan.device), of_group)


def _plan_of(plan: AttentionPlan, kept: Sequence[tuple[int, int]]) -> AttentionPlan:
    """The plan of some requests with their last queries: (request, number of queries) each."""
    return AttentionPlan.of(
        page_size=plan.page_size,
        query_lens=[num_queries for _, num_queries in kept],
        kv_lens=[plan.kv_lens[request] for request, _ in kept],
        pages=[plan.pages[request] for request, _ in kept],
        tail_masks=[plan.tail_masks[request] for request, _ in kept],
        device=plan.device,
    )
