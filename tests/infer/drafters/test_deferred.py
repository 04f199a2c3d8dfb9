"""Rows that wait are the drafter's own when they are read, whatever happened in between."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from oracle_drafter import OracleDrafter
from torch import Tensor

from deepdraft.infer.batch import Rows
from deepdraft.infer.drafters.deferred import MAX_WAITING_ROWS, DeferredDrafter
from deepdraft.infer.kv.layout import KvLayout
from deepdraft.infer.kv.pool import PagePool

NUM_SLOTS = 24
WIDTH = OracleDrafter().kv_layers[0].value_dim


def _pool() -> PagePool:
    pool = PagePool(KvLayout(OracleDrafter().kv_layers, 1, torch.float32), NUM_SLOTS)
    for tensor in _rows(pool):
        tensor.fill_(-1.0)
    return pool


def _rows(pool: PagePool) -> tuple[Tensor, Tensor]:
    layer = pool.layer(0)
    return layer.keys, layer.values


def _pass(slots: list[int], number: int) -> tuple[Rows, Tensor]:
    """The rows of pass `number`, each of its own token, position and features."""
    places = torch.tensor(slots)
    taps = torch.arange(len(slots))[:, None] + 100.0 * number + torch.zeros(len(slots), WIDTH)
    return Rows(token_ids=places + 7 * number, positions=places + 1000 * number, slots=places), taps


passes = st.lists(
    st.tuples(st.lists(st.integers(0, NUM_SLOTS - 1), min_size=1, max_size=5, unique=True), st.booleans()),
    max_size=12,
)


@given(passes=passes)
def test_what_waited_is_there_once_it_is_settled(passes: list[tuple[list[int], bool]]) -> None:
    """The same as when each pass is taken in at once, slots that are written again included."""
    deferred, at_once = DeferredDrafter(OracleDrafter()), OracleDrafter()
    pool, expected = _pool(), _pool()
    for number, (slots, is_plain) in enumerate(passes):
        rows, taps = _pass(slots, number)
        deferred.absorb(rows, taps, pool, can_wait=is_plain)
        at_once.absorb(rows, taps, expected)
    deferred.settle(pool)
    assert deferred.num_waiting_rows == 0
    for found, wanted in zip(_rows(pool), _rows(expected), strict=True):
        assert torch.equal(found, wanted)


def test_rows_of_plain_steps_wait_for_a_draft() -> None:
    deferred, pool = DeferredDrafter(OracleDrafter()), _pool()
    deferred.absorb(*_pass([3, 4], 1), pool, can_wait=True)
    assert deferred.num_waiting_rows == 2
    assert (pool.layer(0).keys == -1).all()
    deferred.draft([], pool, None, top_k=1)  # type: ignore[arg-type]  # the oracle reads no attention
    assert deferred.num_waiting_rows == 0
    assert pool.layer(0).keys[[3, 4], 0, 0].tolist() == [10.0, 11.0]


def test_no_more_wait_than_are_bounded() -> None:
    deferred, pool = (
        DeferredDrafter(OracleDrafter()),
        PagePool(KvLayout(OracleDrafter().kv_layers, 1, torch.float32), 99),
    )
    for slot in range(MAX_WAITING_ROWS):
        assert deferred.num_waiting_rows == slot
        deferred.absorb(*_pass([slot], 0), pool, can_wait=True)
    assert deferred.num_waiting_rows == 0


def test_what_is_asked_is_the_others() -> None:
    drafter = OracleDrafter()
    deferred = DeferredDrafter(drafter)
    names = ("name", "draft_len", "scratch_len", "tapped_layers", "kv_layers")
    assert [getattr(deferred, name) for name in names] == [getattr(drafter, name) for name in names]
