"""The product with an output matrix: few rows, many columns. Shape letters: T rows, I and O numbers of each."""

from __future__ import annotations

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.infer.kernels import native_linear


def linear(x: Tensor, weights: Tensor) -> Tensor:
    """x [T, I] times the transpose of weights [O, I]: [T, O], natively where that is the faster."""
    if native_linear.takes(x, weights) and native_linear.is_built():
        return native_linear.linear(x, weights)
    return F.linear(x, weights)
