"""Feed-forward of few rows in C++ for CPUs: a plain MLP, or router, chosen experts and the shared one, in one call.

torch takes a call for each part of each expert, which costs more than few rows' arithmetic. Here an expert's weights
are read once for all its rows; `native/` has the kernels, this module gives them addresses. Weights are used where
they lie, in float32, bfloat16 or float16, and sums are float32. What a feed-forward means is defined in `layers`,
whose torch path computes all that this one does not take.

Letters: T rows, H hidden width, I inner width, E experts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from deepdraft.infer.config import MoeShape
from deepdraft.infer.kernels.native.library import Experts, NotBuilt, instruction_sets, load, shared_threads

MOST_ROWS = {"avx512": 2048, "avx2": 2048, "portable": 64}
"""By instruction set; more rows go to torch. On a Zen 4 core torch was not faster at any number that was tried: two
thousand rows take 0.7 to 0.8 times as long natively. Other makers' processors may do better at torch's products, and
without wide vectors nothing but torch's calls is saved."""
_DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""As in attention.h"""


@dataclass(frozen=True, slots=True, eq=False)
class MlpWeights:
    """Of one MLP, as `layers.mlp` has them."""

    gate_up: Tensor
    """[2 * I, H], the rows of gate first"""
    down: Tensor
    """[H, I]"""


@dataclass(frozen=True, slots=True, eq=False)
class RouterWeights:
    """As `layers.experts` has them, float32."""

    shape: MoeShape
    weight: Tensor
    """[E, H]"""
    selection_bias: Tensor
    """[E]"""


class NativeFeedForward:
    """One layer's weights, and the call that takes rows through them."""

    def __init__(
        self,
        shared: MlpWeights | None,
        router: RouterWeights | None = None,
        experts: Sequence[MlpWeights] = (),
        *,
        instruction_set: str | None = None,
    ) -> None:
        """shared: what every row passes, a plain MLP where there is no router. Weights must be such as `can_read`
        says. instruction_set None: the best that there is here. Raises NotBuilt."""
        library = load()
        self._call = library.deepdraft_feed_forward
        known = instruction_sets(library)
        self.instruction_set = instruction_set or known[0]
        self._instruction_set_index = known.index(self.instruction_set)
        self._most_rows = MOST_ROWS[self.instruction_set]
        first = (shared, *experts)[0] or experts[0]
        self._dtype, self._hidden_dim = first.gate_up.dtype, first.gate_up.shape[1]
        self._gate_up = _addresses([expert.gate_up for expert in experts])
        self._down = _addresses([expert.down for expert in experts])
        self._kept = (shared, router, tuple(experts))
        self._experts = Experts(
            gate_up=ctypes.addressof(self._gate_up),
            down=ctypes.addressof(self._down),
            hidden_dim=self._hidden_dim,
            inner_dim=experts[0].down.shape[1] if experts else 0,
            dtype=_DTYPES[self._dtype],
        )
        if shared is not None:
            self._experts.shared_gate_up = shared.gate_up.data_ptr()
            self._experts.shared_down = shared.down.data_ptr()
            self._experts.shared_dim = shared.down.shape[1]
        if router is not None:
            self._set_router(router)
        self._address = ctypes.addressof(self._experts)

    def _set_router(self, router: RouterWeights) -> None:
        shape, experts = router.shape, self._experts
        experts.router = router.weight.data_ptr()
        experts.selection_bias = router.selection_bias.data_ptr()
        experts.num_experts = shape.num_experts
        experts.num_experts_per_tok = shape.num_experts_per_tok
        experts.num_groups = shape.num_groups
        experts.num_groups_per_tok = shape.num_groups_per_tok
        experts.is_normalised = shape.norm_topk_prob
        experts.weight_scale = shape.routed_scaling_factor

    def takes(self, x: Tensor) -> bool:
        """Whether x [T, H] is for this call: few rows on the CPU, side by side, float32 or the weights' dtype, that
        nothing is to be derived from."""
        return (
            (x.dtype == torch.float32 or x.dtype == self._dtype)
            and 0 < x.shape[0] <= self._most_rows
            and x.is_cpu
            and x.ndim == 2
            and x.shape[1] == self._hidden_dim
            and not x.requires_grad
            and x.is_contiguous()
        )

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, H] to [T, H], of x's dtype, rounded once. A row's result depends on no other row, nor on the
        number of threads."""
        rows = x if x.dtype == torch.float32 else x.to(torch.float32)
        out = torch.empty_like(rows)
        threads = shared_threads(torch.get_num_threads()).handle
        failed = self._call(
            self._address, rows.data_ptr(), out.data_ptr(), rows.shape[0], threads, self._instruction_set_index
        )
        if failed:
            raise MemoryError("no memory for a feed-forward")
        return out if x.dtype == torch.float32 else out.to(x.dtype)


def native_feed_forward(
    shared: MlpWeights | None, router: RouterWeights | None = None, experts: Sequence[MlpWeights] = ()
) -> NativeFeedForward | None:
    """The call for these weights, as `NativeFeedForward`; None where the library was not built, and for weights that
    it doesn't read."""
    if not can_read(shared, router, experts):
        return None
    try:
        return NativeFeedForward(shared, router, experts)
    except NotBuilt:
        return None


def widens_weights(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a feed-forward that computes in this dtype may have narrower weights at no cost."""
    if dtype != torch.float32 or device.type != "cpu":
        return False
    try:
        load()
    except NotBuilt:
        return False
    return True


def can_read(shared: MlpWeights | None, router: RouterWeights | None, experts: Sequence[MlpWeights]) -> bool:
    """Whether the library reads these weights: on the CPU, rows side by side, shapes that fit, all of one dtype that
    it knows, the router in float32; and whether nothing is to be derived from them."""
    mlps = experts if shared is None else (shared, *experts)
    weights = [tensor for mlp in mlps for tensor in (mlp.gate_up, mlp.down)]
    if not weights or weights[0].dtype not in _DTYPES:
        return False
    hidden_dim = weights[1].shape[0]
    widths = {mlp.down.shape[1] for mlp in experts}
    if not all(_is_plain(tensor, weights[0].dtype) for tensor in weights) or len(widths) > 1:
        return False
    if not all(mlp.gate_up.shape == (2 * mlp.down.shape[1], hidden_dim) for mlp in mlps):
        return False
    if not all(mlp.down.shape[0] == hidden_dim for mlp in mlps):
        return False
    return not experts if router is None else _can_route(router, len(experts), hidden_dim)


def _can_route(router: RouterWeights, num_experts: int, hidden_dim: int) -> bool:
    shape, weight, bias = router.shape, router.weight, router.selection_bias
    return (
        shape.num_experts_per_tok <= shape.num_experts == num_experts
        and weight.shape == (num_experts, hidden_dim)
        and bias.shape == (num_experts,)
        and _is_plain(weight, torch.float32)
        and _is_plain(bias, torch.float32)
    )


def _is_plain(tensor: Tensor, dtype: torch.dtype) -> bool:
    return tensor.is_cpu and tensor.dtype == dtype and tensor.is_contiguous() and not tensor.requires_grad


def _addresses(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    return (ctypes.c_void_p * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
