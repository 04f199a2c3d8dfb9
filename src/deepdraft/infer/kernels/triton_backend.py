"""Attention over paged KV on GPUs, by the Triton kernels of `triton/`.

Decode and tree verification: the KV axis is cut so that programs cover the device at batch 1, all query rows of a
key head (nodes x heads) share one reading of the keys. What the kernels are not for goes to the torch back end:
requests with many queries, the expanded form, float64.

Letters as in `plan`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from deepdraft.errors import UsageError
from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.plan import AttentionPlan, LayerKv
from deepdraft.infer.kernels.torch_backend import TorchAttention
from deepdraft.infer.kernels.triton.attend import attend_split
from deepdraft.infer.kernels.triton.launch import Shape, attend
from deepdraft.infer.kernels.triton.lists import DeviceLists
from deepdraft.infer.kernels.triton.tile import Splitting, tile

MAX_QUERY_LEN = 256
"""Longer requests are prompts: bound by multiplication, not by reading, and better off with a dense kernel."""
MAX_DIM = 512
"""Columns of a value, or of a key beside its rotary part, that a program holds at once."""
INTERPRETER = "interpreter"
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class Device:
    """What the launches depend on."""

    arch: str
    """sm_90, gfx942, ..., or INTERPRETER"""
    num_sms: int
    """Streaming multiprocessors, or compute units"""

    @classmethod
    def of(cls, device: torch.device) -> Device:
        """This one. Raises UsageError where it isn't a GPU, and Triton's interpreter isn't on either."""
        if not isinstance(attend_split, JITFunction):
            return cls(INTERPRETER, num_sms=4)
        if device.type != "cuda":
            raise UsageError(f"the triton attention back end runs on a GPU, not on {device}", hint="choose torch")
        properties = torch.cuda.get_device_properties(device)
        if torch.version.hip:
            return cls(properties.gcnArchName.split(":")[0], properties.multi_processor_count)
        return cls(f"sm_{properties.major}{properties.minor}", properties.multi_processor_count)


class TritonAttention:
    """The back end for GPUs."""

    name = "triton"

    def __init__(self, device: torch.device | str = "cuda", *, splitting: Splitting | None = None) -> None:
        """splitting None: the default one. Raises UsageError without a GPU."""
        self.device = Device.of(torch.device(device))
        self._splitting = splitting or Splitting()
        self._torch = TorchAttention(device)
        self._lists: WeakKeyDictionary[AttentionPlan, DeviceLists] = WeakKeyDictionary()
        self._divided: WeakKeyDictionary[AttentionPlan, tuple[_Part, ...]] = WeakKeyDictionary()
        """Both by plan, as long as it lives: all layers of a pass share one."""
        self._lent: WeakSet[AttentionPlan] = WeakSet()

    def attend(self, queries: Tensor, layer: LayerKv, plan: AttentionPlan, *, scale: float) -> Attended:
        """As `AttentionBackend.attend`."""
        is_lent, is_known = plan in self._lent, _is_known(queries, layer, plan.page_size)
        if is_lent and (not is_known or max(plan.query_lens) > MAX_QUERY_LEN):
            raise _unread()
        if not is_known:
            return self._torch.attend(queries, layer, plan, scale=scale)
        if max(plan.query_lens, default=0) <= MAX_QUERY_LEN:
            return self.attend_lists(queries, layer, self._lists_of(plan), scale=scale)
        out = queries.new_empty(*queries.shape[:2], layer.values.shape[2])
        lse = queries.new_empty(queries.shape[:2], dtype=torch.float32)
        for part in self._divided_of(plan):
            attending = self._torch if part.has_many else self
            done = attending.attend(queries[part.rows], layer, part.plan, scale=scale)
            out[part.rows], lse[part.rows] = done.out, done.lse
        return Attended(out, lse)

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
        if plan in self._lent:
            raise _unread()
        return self._torch.attend_expanded(queries, layer, plan, key_up=key_up, value_up=value_up, scale=scale)

    def attend_lists(self, queries: Tensor, layer: LayerKv, lists: DeviceLists, *, scale: float) -> Attended:
        """`attend` with lists in place of a plan; queries [max T, Hq, Dk]. What is launched depends on the lists'
        maxima alone, so a CUDA graph can hold it, once a first call has compiled the kernels: rows beyond the step's
        give out 0 and lse -inf."""
        shape = _shape(queries, layer, lists.page_size)
        num_rows = lists.maxima.query_len * shape.group_size
        if not queries.numel() or not num_rows:
            return Attended(
                queries.new_zeros(*queries.shape[:2], shape.value_dim),
                queries.new_full(queries.shape[:2], float("-inf"), dtype=torch.float32),
            )
        chosen = tile(
            self.device.arch, num_rows=num_rows, widest_dim=shape.widest_dim, dot_bytes=4 if shape.is_wide else 2
        )
        num_programs = lists.maxima.num_requests * shape.num_kv_heads * -(-num_rows // chosen.block_m)
        num_splits = self._splitting.num_splits(
            max_kv_len=lists.maxima.kv_len, num_programs=num_programs, num_sms=self.device.num_sms
        )
        with _on(queries.device):
            return attend(
                queries if queries.stride(2) == 1 else queries.contiguous(),
                layer,
                lists,
                scale=scale,
                tile=chosen,
                num_splits=num_splits,
                min_split_len=self._splitting.min_split_len,
                constants=shape.constants(chosen, is_wide=self.device.arch == INTERPRETER),
            )

    def lend(self, plan: AttentionPlan, lists: DeviceLists) -> None:
        """Have `attend` read this plan from these lists: what a graph captures with `plan` follows every later
        `lists.load`; queries and results are those of the lists' maxima. Raises ValueError where the lists have no
        room for the plan. Attention that would not read the lists raises ValueError from now on."""
        lists.load(plan)
        self._lists[plan] = lists
        self._lent.add(plan)

    def _lists_of(self, plan: AttentionPlan) -> DeviceLists:
        known = self._lists.get(plan)
        if known is None:
            known = self._lists[plan] = DeviceLists.of(plan)
        return known

    def _divided_of(self, plan: AttentionPlan) -> tuple[_Part, ...]:
        known = self._divided.get(plan)
        if known is None:
            known = self._divided[plan] = _divided(plan)
        return known


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """Some requests of a plan."""

    has_many: bool
    """Whether each has more than MAX_QUERY_LEN queries"""
    rows: Tensor
    """int64, their query rows among the plan's"""
    plan: AttentionPlan


def _divided(plan: AttentionPlan) -> tuple[_Part, ...]:
    """Requests with few queries, then those with many; none of either where there are none."""
    parts = []
    for has_many in (False, True):
        chosen = [r for r, query_len in enumerate(plan.query_lens) if (query_len > MAX_QUERY_LEN) == has_many]
        if chosen:
            rows = [row for r in chosen for row in range(*plan.query_rows[r])]
            part = AttentionPlan.of(
                page_size=plan.page_size,
                query_lens=[plan.query_lens[r] for r in chosen],
                kv_lens=[plan.kv_lens[r] for r in chosen],
                pages=[plan.pages[r] for r in chosen],
                tail_masks=[plan.tail_masks[r] for r in chosen],
                device=plan.device,
            )
            parts.append(_Part(has_many, torch.tensor(rows, device=plan.device), part))
    return tuple(parts)


def _shape(queries: Tensor, layer: LayerKv, page_size: int) -> Shape:
    num_kv_heads, value_dim = layer.values.shape[1:]
    return Shape(
        num_kv_heads,
        queries.shape[1] // num_kv_heads,
        page_size,
        queries.shape[2],
        value_dim,
        layer.is_latent,
        layer.keys.dtype,
        queries.dtype,
    )


def _is_known(queries: Tensor, layer: LayerKv, page_size: int) -> bool:
    """Whether the kernels read these types, widths and strides."""
    return (
        _shape(queries, layer, page_size).widest_dim <= MAX_DIM
        and queries.dtype in _DTYPES
        and layer.keys.dtype in _DTYPES
        and layer.values.dtype == layer.keys.dtype
        and layer.keys.stride(2) == 1
        and layer.values.stride(2) == 1
    )


def _unread() -> ValueError:
    """What torch computes is the plan's, not the lists'."""
    return ValueError("a plan whose lists were lent is for the kernels that read them: few queries, absorbed form")


def _on(device: torch.device) -> AbstractContextManager[object]:
    """Triton launches on the current device, whichever the tensors are on."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()
