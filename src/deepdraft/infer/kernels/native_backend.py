"""Attention over paged KV in C++ for CPUs: `native/` has the kernels, this module gives them addresses.

All query rows that share a key head (nodes x heads) are computed over one reading of the keys, prefix and tail alike;
float32, bfloat16 and float16 caches, sums in float32. In the expanded form torch expands a bounded number of latent
rows at a time. What the library does not know, float64, goes to the torch back end.

Letters as in `plan`; t query rows of one request.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.merge import merge
from deepdraft.infer.kernels.native.build import COMMAND
from deepdraft.infer.kernels.native.library import Attention, NotBuilt, Threads, instruction_sets, load
from deepdraft.infer.kernels.native.lists import Lists, lists_of, lists_of_rows
from deepdraft.infer.kernels.plan import AttentionPlan, LayerKv
from deepdraft.infer.kernels.segment import cut, reading
from deepdraft.infer.kernels.source import ExpandedLatents
from deepdraft.infer.kernels.torch_backend import TorchAttention

_DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""As in attention.h"""


def missing() -> str | None:
    """Why there is no native back end here, in a few words; None: there is one."""
    try:
        load()
    except NotBuilt as error:
        return str(error)
    return None


class NativeAttention:
    """The back end for CPUs."""

    name = "native"

    def __init__(
        self,
        device: torch.device | str = "cpu",
        *,
        num_threads: int | None = None,
        instruction_set: str | None = None,
    ) -> None:
        """num_threads None: as many as torch uses, at each call. instruction_set None: the best that there is here.

        Raises UsageError where the library is missing, for another device than the CPU, and for an instruction set
        that the processor or the library lacks.
        """
        if torch.device(device).type != "cpu":
            raise UsageError(f"the native attention back end runs on the CPU, not on {device}", hint="choose torch")
        try:
            self._library = load()
        except NotBuilt as error:
            raise UsageError(f"no native attention back end: {error}", hint=f"{COMMAND}, or choose torch") from None
        known = instruction_sets(self._library)
        if instruction_set is not None and instruction_set not in known:
            raise UsageError(f"no instruction set {instruction_set!r} here", hint=f"known: {', '.join(known)}")
        self.instruction_set = instruction_set or known[0]
        self._instruction_set_index = known.index(self.instruction_set)
        self._num_threads = num_threads
        self._threads: dict[int, Threads] = {}
        """By their number: one pass may want more than the next, and starting them is dear."""
        self._torch = TorchAttention(device)
        self._lists: WeakKeyDictionary[AttentionPlan, Lists] = WeakKeyDictionary()
        """By plan, as long as it lives: all layers of a pass share one."""
        self._fields: WeakKeyDictionary[LayerKv, Mapping[str, int]] = WeakKeyDictionary()
        """Of the pool's layers, which all passes share."""

    def attend(self, queries: Tensor, layer: LayerKv, plan: AttentionPlan, *, scale: float) -> Attended:
        """As `AttentionBackend.attend`."""
        if not _is_known(queries, layer):
            return self._torch.attend(queries, layer, plan, scale=scale)
        lists = self._lists.get(plan)
        if lists is None:
            lists = self._lists[plan] = lists_of(plan)
        fields = self._fields.get(layer)
        if fields is None:
            fields = self._fields[layer] = _fields(layer)
        found = self._attend(_wide(queries), fields, lists, scale)
        return found if queries.dtype == torch.float32 else Attended(found.out.to(queries.dtype), found.lse)

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
        if not _is_known(queries, layer):
            return self._torch.attend_expanded(queries, layer, plan, key_up=key_up, value_up=value_up, scale=scale)
        wide = _wide(queries)
        source = ExpandedLatents(layer, torch.float32, key_up=key_up, value_up=value_up)
        found = []
        for request, (first, stop) in enumerate(plan.query_rows):
            parts = list(self._expanded_parts(wide[first:stop], source, plan, request, scale))
            found.append(parts[0] if len(parts) == 1 else merge(parts))
        out = torch.cat([of.out for of in found]).to(queries.dtype)
        return Attended(out, torch.cat([of.lse for of in found]))

    def _expanded_parts(
        self, queries: Tensor, source: ExpandedLatents, plan: AttentionPlan, request: int, scale: float
    ) -> Iterator[Attended]:
        """One request's queries [t, Hq, Dn + Dr] with each part of its tokens: out [t, Hq, Dv'], lse [t, Hq]."""
        read = reading(plan, request, block_len=source.block_len)
        for segment in cut(read.prefix, source.block_len):
            rows = LayerKv(*source.load(segment), is_latent=False)
            lists = lists_of_rows(len(queries), len(rows.keys), is_tail=False, mask=None)
            yield self._attend(queries, _fields(rows), lists, scale)
        if read.tail is not None:
            rows = LayerKv(*source.load(read.tail), is_latent=False)
            lists = lists_of_rows(len(queries), len(rows.keys), is_tail=True, mask=plan.tail_masks[request])
            yield self._attend(queries, _fields(rows), lists, scale)

    def _attend(self, queries: Tensor, layer_fields: Mapping[str, int], lists: Lists, scale: float) -> Attended:
        """Queries [T, Hq, Dk] in float32, contiguous; the layer whose fields these are must still be there."""
        num_rows, num_heads, _ = queries.shape
        out = queries.new_empty(num_rows, num_heads, layer_fields["value_dim"])
        lse = queries.new_empty(num_rows, num_heads)
        asked = Attention(
            queries=queries.data_ptr(),
            out=out.data_ptr(),
            lse=lse.data_ptr(),
            num_heads=num_heads,
            scale=scale,
            **layer_fields,
            **lists.fields,
        )
        if self._library.deepdraft_attend(asked, self._threads_now().handle, self._instruction_set_index):
            raise MemoryError("no memory for attention")
        return Attended(out, lse)

    def _threads_now(self) -> Threads:
        wanted = self._num_threads or torch.get_num_threads()
        threads = self._threads.get(wanted)
        if threads is None:
            threads = self._threads[wanted] = Threads(self._library, wanted)
        return threads


def _fields(layer: LayerKv) -> Mapping[str, int]:
    """By name, what `library.Attention` says of a layer's rows."""
    keys, values = layer.keys, layer.values
    return {
        "keys": keys.data_ptr(),
        "values": values.data_ptr(),
        "key_slot_bytes": keys.stride(0) * keys.itemsize,
        "key_head_bytes": keys.stride(1) * keys.itemsize,
        "value_slot_bytes": values.stride(0) * values.itemsize,
        "value_head_bytes": values.stride(1) * values.itemsize,
        "num_kv_heads": keys.shape[1],
        "key_dim": keys.shape[2],
        "value_dim": values.shape[2],
        "dtype": _DTYPES[keys.dtype],
    }


def _wide(queries: Tensor) -> Tensor:
    """In float32, contiguous; the same tensor where it is so already."""
    return (queries if queries.dtype == torch.float32 else queries.to(torch.float32)).contiguous()


def _is_known(queries: Tensor, layer: LayerKv) -> bool:
    """Whether the library reads these dtypes and strides."""
    keys, values = layer.keys, layer.values
    return (
        queries.dtype in _DTYPES
        and keys.dtype in _DTYPES
        and values.dtype == keys.dtype
        and keys.stride(2) == 1
        and values.stride(2) == 1
    )
