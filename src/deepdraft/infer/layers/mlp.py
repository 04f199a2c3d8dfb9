"""The gated feed-forward network, SwiGLU (Shazeer, arXiv 2002.05202). Shape letters: T tokens, H hidden, I inner."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Mlp:
    """down @ (silu(gate @ x) * (up @ x)); gate and up are one matrix, so that they are one call."""

    gate_up: Tensor
    """[2 * I, H], the rows of gate first"""
    down: Tensor
    """[H, I]"""

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, H] to [T, H]."""
        gate, up = F.linear(x, self.gate_up).chunk(2, dim=-1)
        return F.linear(F.silu(gate) * up, self.down)
