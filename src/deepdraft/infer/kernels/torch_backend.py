"""Attention over paged KV with torch alone: portable, and fast on a CPU.

Each request's prefix, which every query sees, is attended to without a mask; its tail, the queries' own tokens, with
one; the two are merged exactly. The query heads that share a key head are rows of one problem, so that keys are read
once for all of them (2 to 5 times faster than expanding the keys), and latent rows serve as keys and as values at
once. Contiguous slots are read in place, other pages are gathered block by block into memory that stays in the CPU's
cache. No array grows with kv_len.

Letters as in `plan`; G = Hq / Hk heads of a group, t query rows of one request, n tokens of one segment, B splits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.dense import dense_attention
from deepdraft.infer.kernels.merge import merge
from deepdraft.infer.kernels.padded import PaddedGroup
from deepdraft.infer.kernels.plan import AttentionPlan, LayerKv
from deepdraft.infer.kernels.segment import Reading, cut
from deepdraft.infer.kernels.source import CachedRows, ExpandedLatents, Source
from deepdraft.infer.kernels.work import Work, work

MAX_HELD = 1 << 20
"""Numbers in partial results held before they are merged: few merges for few query rows, bounded memory for many."""
ROWS_PER_TASK = 32
"""Query rows of one head that a dense kernel leaves to one thread."""
TASKS_PER_THREAD = 2
"""More than one evens out tasks of unequal size, and cores that something else keeps busy."""
MIN_SPLIT_WORK = 1 << 22
"""Numbers read and multiplied below which merging (some 50 us) costs more than threads save. Reading a key takes as
long as multiplying it by READ_ROWS query rows."""
READ_ROWS = 8


class TorchAttention:
    """The back end for machines without a faster one."""

    name = "torch"

    def __init__(self, device: torch.device | str = "cpu") -> None:
        self._dense = dense_attention(torch.device(device))
        self._work: WeakKeyDictionary[AttentionPlan, dict[tuple[int, int], Work]] = WeakKeyDictionary()
        """By plan and kind of layer (block length, heads that share a key head), as long as the plan lives."""

    def attend(self, queries: Tensor, layer: LayerKv, plan: AttentionPlan, *, scale: float) -> Attended:
        """As `AttentionBackend.attend`."""
        return self._attend(queries, CachedRows(layer, _compute_dtype(queries)), plan, scale)

    def attend_expanded(
        self,
        queries: Tensor,
        layer: LayerKv,
        plan: AttentionPlan,
        *,
        key_up: Tensor,
        value_up: Tensor,
        scale: float,
    ) -> Attended:
        """As `AttentionBackend.attend_expanded`."""
        source = ExpandedLatents(layer, _compute_dtype(queries), key_up=key_up, value_up=value_up)
        return self._attend(queries, source, plan, scale)

    def _attend(self, queries: Tensor, source: Source, plan: AttentionPlan, scale: float) -> Attended:
        """Request by request; queries [T, Hq, Dk]."""
        num_rows, num_heads, _ = queries.shape
        grouped = queries.to(_compute_dtype(queries)).reshape(num_rows, source.num_kv_heads, -1, queries.shape[2])
        out = grouped.new_empty(*grouped.shape[:3], source.value_dim)
        lse = grouped.new_empty(grouped.shape[:3])
        planned = self._plan_work(plan, source.block_len, num_heads // source.num_kv_heads)
        for group in planned.padded:
            done = self._padded(grouped[group.query_rows], group, source, scale)
            out[group.query_rows], lse[group.query_rows] = done
        for request, reading in planned.alone:
            rows = slice(*plan.query_rows[request])
            out[rows], lse[rows] = self._alone(grouped[rows], reading, source, scale)
        return Attended(out.flatten(1, 2).to(queries.dtype), lse.flatten(1, 2))

    def _padded(self, queries: Tensor, group: PaddedGroup, source: Source, scale: float) -> Attended:
        """Requests of one query_len; queries [B * t, Hk, G, Dk], out [B * t, Hk, G, Dv], lse [B * t, Hk, G]."""
        num_requests, (_, num_kv_heads, group_size, _) = group.num_requests, queries.shape
        keys, values = source.load(group.slots)
        done = self._dense(
            queries.view(num_requests, -1, *queries.shape[1:]).permute(0, 2, 3, 1, 4).flatten(2, 3),
            keys.view(num_requests, -1, *keys.shape[1:]).transpose(1, 2),
            values.view(num_requests, -1, *values.shape[1:]).transpose(1, 2),
            value_dim=source.value_dim,
            scale=scale,
            mask=group.mask.to(queries.dtype),
        )
        shape = (num_requests, num_kv_heads, group_size, -1)
        return Attended(
            done.out.reshape(*shape, source.value_dim).permute(0, 3, 1, 2, 4).flatten(0, 1),
            done.lse.reshape(shape).permute(0, 3, 1, 2).flatten(0, 1),
        )

    def _alone(self, queries: Tensor, reading: Reading, source: Source, scale: float) -> Attended:
        """One request; queries [t, Hk, G, Dk], out [t, Hk, G, Dv], lse [t, Hk, G]."""
        rows = queries.permute(1, 2, 0, 3)
        done = _merged(self._partials(rows, reading, source, scale))
        return Attended(
            done.out.view(*rows.shape[:3], -1).permute(2, 0, 1, 3), done.lse.view(rows.shape[:3]).permute(2, 0, 1)
        )

    def _partials(self, rows: Tensor, reading: Reading, source: Source, scale: float) -> Iterator[Attended]:
        """One request's rows [Hk, G, t, Dk] with each part of its tokens: out [Hk, G * t, Dv], lse [Hk, G * t]."""
        packed = rows.flatten(1, 2)
        for segment in reading.prefix if source.is_view else cut(reading.prefix, source.block_len):
            keys, values = source.load(segment)
            for part, num_splits in _parts(len(keys), packed):
                done = self._dense(
                    packed.expand(num_splits, *packed.shape),
                    _by_split(keys[part], num_splits),
                    _by_split(values[part], num_splits),
                    value_dim=source.value_dim,
                    scale=scale,
                )
                yield from map(Attended, done.out, done.lse)
        if reading.tail is None:
            return
        keys, values = (part.transpose(0, 1).unsqueeze(1) for part in source.load(reading.tail))
        done = self._dense(
            rows,
            keys.expand(-1, rows.shape[1], -1, -1),
            values.expand(-1, rows.shape[1], -1, -1),
            value_dim=source.value_dim,
            scale=scale,
            mask=None if reading.mask is None else reading.mask.to(rows.dtype),
            is_causal=reading.mask is None,
        )
        yield Attended(done.out.flatten(1, 2), done.lse.flatten(1, 2))

    def _plan_work(self, plan: AttentionPlan, block_len: int, group_size: int) -> Work:
        known, layer_kind = self._work.setdefault(plan, {}), (block_len, group_size)
        if layer_kind not in known:
            known[layer_kind] = work(plan, block_len=block_len, group_size=group_size)
        return known[layer_kind]


def _parts(num_tokens: int, packed: Tensor) -> Iterator[tuple[slice, int]]:
    """A segment's tokens in parts, each with the number of equal splits that occupies every thread; packed
    [Hk, G * t, Dk]."""
    num_kv_heads, num_rows, key_dim = packed.shape
    num_threads, num_tasks = torch.get_num_threads(), num_kv_heads * -(-num_rows // ROWS_PER_TASK)
    num_splits = 1
    if num_threads > 1 and num_kv_heads * num_tokens * key_dim * (num_rows + READ_ROWS) >= MIN_SPLIT_WORK:
        num_splits = min(-(-TASKS_PER_THREAD * num_threads // num_tasks), num_tokens)
    whole = num_tokens // num_splits * num_splits
    yield slice(0, whole), num_splits
    if whole < num_tokens:
        yield slice(whole, num_tokens), 1


def _by_split(rows: Tensor, num_splits: int) -> Tensor:
    """[n, Hk, D] as [B, Hk, n / B, D]"""
    return rows.reshape(num_splits, -1, *rows.shape[1:]).transpose(1, 2)


def _merged(partials: Iterable[Attended]) -> Attended:
    held: list[Attended] = []
    for partial in partials:
        held.append(partial)
        if len(held) > 1 and len(held) * partial.out.numel() > MAX_HELD:
            held = [merge(held)]
    return held[0] if len(held) == 1 else merge(held)


def _compute_dtype(queries: Tensor) -> torch.dtype:
    return torch.promote_types(queries.dtype, torch.float32)
