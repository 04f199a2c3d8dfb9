"""vLLM's KV cache manager as arithmetic: layers in groups of equal pages, requests in whole blocks of every group.

Source: vLLM 0.32.0, v1/core/kv_cache_utils.py (get_kv_cache_groups and what it calls), v1/kv_cache_interface.py
(max_memory_usage_bytes of each kind of layer), platforms/interface.py (block size of models with states).

One pool of blocks serves all groups: a block holds `block_len` tokens of every layer of one group, so a group with
fewer or smaller layers than the widest wastes the rest. Left out: block-outermost layouts, which pack layers of
different pages more tightly (`vllm_packed`, for DeepSeek-V4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from deepdraft.cost.kv_family import Family, Grouped, KvFormat, Latent, Recurrent
from deepdraft.errors import UsageError

Kind = Literal["full", "window", "chunk", "state"]
DEFAULT_BLOCK_LEN = 16
_LATENT_BLOCK_LEN = 128
"""Blocks of latent attention beside states are a multiple of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSet:
    """Layers whose cache is alike, on one rank."""

    kind: Kind
    num_layers: int
    page_bytes: int
    """One layer's part of a block."""
    block_len: int
    """Tokens of a block; of states it has no meaning."""
    window: int | None = None
    is_latent: bool = False

    def num_blocks(self, max_len: int, in_flight_len: int, num_draft: int) -> int:
        """Blocks that a request of `max_len` tokens may hold, with `in_flight_len` tokens not freed yet."""
        window = self.window or 0
        match self.kind:
            case "full":
                return -(-max_len // self.block_len)
            case "window":  # one more: a window need not begin where a block does
                return -(-min(window - 1 + in_flight_len, max_len) // self.block_len) + 1
            case "chunk":
                return -(-min(window + in_flight_len, max_len) // self.block_len)
            case "state":  # mamba_cache_mode "align", in force with prefix caching: the state, and one to resume from
                return 2 + num_draft


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockGroup:
    """One block table: a request takes `layers.num_blocks` of it, each of `block_bytes`."""

    layers: LayerSet
    block_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayout:
    """How a model's cache is laid out in blocks."""

    groups: tuple[BlockGroup, ...]
    block_len: int
    """Tokens of a block of attention."""
    in_flight_len: int
    num_draft: int

    @property
    def block_bytes(self) -> int:
        """One block of the pool, as wide as the widest group."""
        return max(group.block_bytes for group in self.groups)

    @property
    def is_hybrid(self) -> bool:
        """Whether part of a request's memory does not grow with its length."""
        return any(group.layers.kind != "full" for group in self.groups)

    def request_bytes(self, max_len: int) -> int:
        """What a request of that length may hold."""
        return sum(
            group.block_bytes * group.layers.num_blocks(max_len, self.in_flight_len, self.num_draft)
            for group in self.groups
        )

    def num_requests(self, pool_bytes: int, max_len: int) -> float:
        """ "Maximum concurrency": requests of that length that the pool holds."""
        whole_blocks = pool_bytes // self.block_bytes * self.block_bytes
        return whole_blocks / self.request_bytes(max_len)

    def longest(self, pool_bytes: int, max_len: int) -> int:
        """The longest request, at most `max_len`, that fits the pool alone; 0 where none does."""
        low, high = 0, max_len
        while low < high:
            middle = (low + high + 1) // 2
            if self.request_bytes(middle) <= pool_bytes:
                low = middle
            else:
                high = middle - 1
        return low

    @property
    def bytes_per_token(self) -> float:
        """What every further token of a long request takes, padding included."""
        full = (group for group in self.groups if group.layers.kind == "full")
        return sum(group.block_bytes / group.layers.block_len for group in full)

    def fixed_bytes(self, max_len: int) -> int:
        """What a request of that length holds besides: windows with their tokens in flight, and states."""
        return sum(
            group.block_bytes * group.layers.num_blocks(max_len, self.in_flight_len, self.num_draft)
            for group in self.groups
            if group.layers.kind != "full"
        )


def block_layout(
    families: Iterable[Family],
    form: KvFormat,
    *,
    tp_size: int = 1,
    pp_size: int = 1,
    block_len: int = DEFAULT_BLOCK_LEN,
    in_flight_len: int,
    num_draft: int = 0,
    has_chunks: bool = False,
    dcp_size: int = 1,
) -> BlockLayout:
    """The layout of one rank's cache.

    families: the target's, and the drafter's after them. num_draft: tokens of a draft, 0 for none. has_chunks:
    windows are chunks that don't slide (Llama 4). dcp_size: ranks that share a sequence's tokens, whose blocks hold
    so many times more. Raises UsageError for caches that vLLM can't put into one pool.
    """
    families = tuple(families)
    if any(each.stride != 1 for each in families):
        raise UsageError("the cache's rows stand for several tokens: not DeepSeek-V4, and its layout is not known")
    block_len = _attention_block_len(families, form, tp_size, block_len)
    sets = _layer_sets(families, form, tp_size, pp_size, block_len, has_chunks)
    sets = [replace(each, block_len=each.block_len * dcp_size) for each in sets]
    groups = _one_group(sets) or _equal_groups(_equal_pages(sets))
    return BlockLayout(groups=groups, block_len=block_len, in_flight_len=in_flight_len, num_draft=num_draft)


def _attention_block_len(families: Sequence[Family], form: KvFormat, tp_size: int, block_len: int) -> int:
    """Raised beside states until a page of attention holds one."""
    state_bytes = max((_layer_state_bytes(each, form, tp_size) for each in families), default=0)
    attention = [each for each in families if not isinstance(each, Recurrent)]
    if not state_bytes or not attention:
        return block_len
    row_bytes = max(each.row_bytes(form, tp_size) // each.num_layers for each in attention)
    step = max(block_len, _LATENT_BLOCK_LEN) if isinstance(attention[0], Latent) else block_len
    return step * -(-state_bytes // (step * row_bytes))


def _layer_state_bytes(family: Family, form: KvFormat, tp_size: int) -> int:
    return family.state_bytes(form, tp_size) // family.num_layers


def _layer_sets(
    families: Sequence[Family], form: KvFormat, tp_size: int, pp_size: int, block_len: int, has_chunks: bool
) -> list[LayerSet]:
    sets = []
    for each in families:
        num_layers = -(-each.num_layers // pp_size)
        if isinstance(each, Recurrent):
            page_bytes = _layer_state_bytes(each, form, tp_size)
            kind: Kind = "state"
        else:
            page_bytes = block_len * (each.row_bytes(form, tp_size) // each.num_layers)
            kind = "full" if each.window is None else "chunk" if has_chunks else "window"
        sets.append(
            LayerSet(
                kind=kind,
                num_layers=num_layers,
                page_bytes=page_bytes,
                block_len=block_len,
                window=each.window,
                is_latent=not isinstance(each, Grouped | Recurrent),
            )
        )
    return sets


def _one_group(sets: Sequence[LayerSet]) -> tuple[BlockGroup, ...] | None:
    """All layers keep the same tokens: one block table, pages side by side whatever their size."""
    if len({(each.kind, each.window) for each in sets}) != 1 or sets[0].kind == "state":
        return None
    block_bytes = sum(each.num_layers * each.page_bytes for each in sets)
    return (BlockGroup(layers=sets[0], block_bytes=block_bytes),)


def _equal_pages(sets: Sequence[LayerSet]) -> list[LayerSet]:
    """Smaller pages take more tokens where that comes out even, else they are padded."""
    page_bytes = max(each.page_bytes for each in sets)
    equal = []
    for each in sets:
        is_even = page_bytes % each.page_bytes == 0 and each.kind != "state"
        if not is_even and each.is_latent:
            return _all_full(sets)
        block_len = each.block_len * (page_bytes // each.page_bytes) if is_even else each.block_len
        equal.append(replace(each, page_bytes=page_bytes, block_len=block_len))
    return equal


def _all_full(sets: Sequence[LayerSet]) -> list[LayerSet]:
    """Latent pages can't be padded: windows beside them are kept as if they were full attention."""
    if any(each.kind == "state" for each in sets):
        raise UsageError("vLLM can't put this model's latent attention, states and windows into one pool")
    return [replace(each, kind="full", window=None) for each in sets]


def _equal_groups(sets: Sequence[LayerSet]) -> tuple[BlockGroup, ...]:
    """Groups of equally many layers: as many as the rarest kind has, or as the commonest if that is close."""
    if len({(each.kind, each.window) for each in sets}) == 1 and sets[0].kind != "state":
        return _one_group(sets) or ()
    alike: dict[LayerSet, int] = {}
    for each in sets:
        key = replace(each, num_layers=1)
        alike[key] = alike.get(key, 0) + each.num_layers
    fewest, most = min(alike.values()), max(alike.values())
    size = most if most < 1.5 * fewest else fewest
    return tuple(
        BlockGroup(layers=replace(layers, num_layers=size), block_bytes=size * layers.page_bytes)
        for layers, num_layers in alike.items()
        for _ in range(-(-num_layers // size))
    )
