"""The gated feed-forward network, SwiGLU (Shazeer, arXiv 2002.05202). Shape letters: T tokens, H hidden, I inner."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.infer.kernels.native_experts import MlpWeights, NativeFeedForward, native_feed_forward


@dataclass(frozen=True, slots=True, eq=False)
class Mlp:
    """down @ (silu(gate @ x) * (up @ x)); gate and up are one matrix, so that they are one call.

    Weights may be narrower than x: they are widened where they are used.
    """

    gate_up: Tensor
    """[2 * I, H], the rows of gate first"""
    down: Tensor
    """[H, I]"""
    native: NativeFeedForward | None = field(init=False, repr=False)
    """All of it as one call, for few rows; None where there is none for these weights"""

    def __post_init__(self) -> None:
        object.__setattr__(self, "native", native_feed_forward(MlpWeights(self.gate_up, self.down)))

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, H] to [T, H]."""
        if self.native is not None and self.native.takes(x):
            return self.native(x)
        return self.by_torch(x)

    def by_torch(self, x: Tensor) -> Tensor:
        """The definition: what a native call must agree with."""
        gate, up = F.linear(x, self.gate_up.to(x.dtype)).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, self.down.to(x.dtype))
