"""Which rows are queries, and of which plan: narrowing and splitting lose no row and change no row's keys."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.layers.forward_pass import Queries, all_queries, narrowed_queries

PAGE_SIZE = 2


def plan_of(query_lens: list[int], prefix_lens: list[int], masks: list[torch.Tensor | None]) -> AttentionPlan:
    kv_lens = [query_len + prefix_len for query_len, prefix_len in zip(query_lens, prefix_lens, strict=True)]
    pages, first = [], 0
    for kv_len in kv_lens:
        num_pages = -(-kv_len // PAGE_SIZE)
        pages.append(list(range(first, first + num_pages)))
        first += num_pages
    return AttentionPlan.of(
        page_size=PAGE_SIZE, query_lens=query_lens, kv_lens=kv_lens, pages=pages, tail_masks=masks
    )


def turns_of(plan: AttentionPlan) -> torch.Tensor:
    """Each row's own number where its rotary turns would be."""
    return torch.arange(sum(plan.query_lens)).to(torch.complex64)[:, None]


def seen_slots(plan: AttentionPlan) -> list[list[int]]:
    """The slots that each query row of a plan sees, row by row."""
    rows = []
    for request, query_len in enumerate(plan.query_lens):
        slots, mask = plan.slots[request].tolist(), plan.tail_masks[request]
        prefix_len = plan.kv_lens[request] - query_len
        for query in range(query_len):
            tail = range(query + 1) if mask is None else mask[query].nonzero()[:, 0].tolist()
            rows.append(slots[:prefix_len] + [slots[prefix_len + key] for key in tail])
    return rows


def seen_by_queries(queries: Queries, num_rows: int) -> dict[int, list[int]]:
    """Row of the batch -> slots it sees, over both groups."""
    batch_rows = list(range(num_rows)) if queries.rows is None else queries.rows.tolist()
    assert queries.turns[:, 0, 0].real.tolist() == batch_rows
    found: dict[int, list[int]] = {}
    for group in (queries.few, queries.many):
        if group is None:
            continue
        rows = range(len(batch_rows)) if group.rows is None else group.rows.tolist()
        for row, slots in zip(rows, seen_slots(group.plan), strict=True):
            assert batch_rows[row] not in found
            found[batch_rows[row]] = slots
    return found


@st.composite
def plans(draw: st.DrawFn) -> AttentionPlan:
    query_lens = draw(st.lists(st.integers(1, 5), min_size=1, max_size=5))
    prefix_lens = [draw(st.integers(0, 6)) for _ in query_lens]
    masks = [
        torch.eye(query_len, dtype=torch.bool) if draw(st.booleans()) and query_len > 1 else None
        for query_len in query_lens
    ]
    return plan_of(query_lens, prefix_lens, masks)


many_froms = st.sampled_from([None, 1, 3, 100])


@settings(deadline=None)
@given(plans(), many_froms)
def test_every_row_is_in_one_group_and_sees_what_the_plan_says(plan: AttentionPlan, many_from: int | None) -> None:
    queries = all_queries(plan, turns_of(plan), many_from)
    num_rows = sum(plan.query_lens)
    assert seen_by_queries(queries, num_rows) == dict(enumerate(seen_slots(plan)))
    for group, is_many in ((queries.few, False), (queries.many, True)):
        if group is not None:
            assert all((many_from is not None and n >= many_from) is is_many for n in group.plan.query_lens)


@settings(deadline=None)
@given(plans(), many_froms, st.data())
def test_narrowed_rows_see_what_they_saw(plan: AttentionPlan, many_from: int | None, data: st.DataObject) -> None:
    num_rows = sum(plan.query_lens)
    rows = data.draw(st.lists(st.integers(0, num_rows - 1), unique=True, max_size=num_rows).map(sorted))
    queries = narrowed_queries(plan, turns_of(plan), rows, many_from)
    if queries is None:
        return
    everything = seen_slots(plan)
    assert seen_by_queries(queries, num_rows) == {row: everything[row] for row in rows}


@pytest.mark.parametrize(
    ("rows", "is_narrowed"),
    [
        ([], True),
        ([3], True),
        ([2, 3, 8], True),
        ([4, 5, 6], True),
        ([0], False),  # not the end of its request's rows
        ([6], False),  # a part of a tree
        (list(range(9)), False),  # nothing to save
    ],
)
def test_what_can_be_narrowed_is(rows: list[int], is_narrowed: bool) -> None:
    """Rows 0 .. 3 a prompt chunk, 4 .. 6 a tree, 7 and 8 a chunk."""
    plan = plan_of([4, 3, 2], [1, 5, 0], [None, torch.eye(3, dtype=torch.bool), None])
    assert (narrowed_queries(plan, turns_of(plan), rows, None) is not None) is is_narrowed
