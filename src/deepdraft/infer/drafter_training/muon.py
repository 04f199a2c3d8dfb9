"""Muon for matrices: momentum with its singular values set to about one.

By Jordan et al. (kellerjordan.github.io/posts/muon); the step is scaled to AdamW's size as Moonlight does (arXiv
2502.16982, equation 4), so both share a range of learning rates. Shape letters: M matrices, R rows, C columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NUM_ITERATIONS = 5


def orthogonalized(matrices: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Nearly orthogonal factors of `matrices` (M, R, C): U V^T of each, singular values within about 0.7 to 1.2.

    Five steps of the quintic Newton-Schulz iteration, in `dtype`; the result has the dtype of `matrices`.
    """
    a, b, c = NEWTON_SCHULZ
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = (matrices.mT if is_tall else matrices).to(dtype)
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(NUM_ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    orthogonal: Tensor = (x.mT if is_tall else x).to(matrices.dtype)
    return orthogonal


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay, for parameters of two dimensions.

    Matrices of one shape (or its transpose) are orthogonalized in one batch.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        matmul_dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._matmul_dtype = matmul_dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            same_shape: dict[tuple[int, int], list[tuple[nn.Parameter, Tensor]]] = defaultdict(list)
            for param in group["params"]:
                if param.grad is None:
                    continue
                direction = self._nesterov(param, group["momentum"])
                if direction.shape[0] > direction.shape[1]:
                    direction = direction.mT
                same_shape[direction.shape[0], direction.shape[1]].append((param, direction))
            for directions in same_shape.values():
                self._move(directions, group["lr"], group["weight_decay"])

    def _nesterov(self, param: nn.Parameter, momentum: float) -> Tensor:
        state = self.state[param]
        if not state:
            state["momentum"] = torch.zeros_like(param)
        running: Tensor = state["momentum"]
        assert param.grad is not None
        running.lerp_(param.grad, 1 - momentum)
        return torch.lerp(param.grad, running, momentum)

    def _move(self, directions: list[tuple[nn.Parameter, Tensor]], lr: float, weight_decay: float) -> None:
        orthogonal = orthogonalized(torch.stack([direction for _, direction in directions]), self._matmul_dtype)
        for (param, direction), result in zip(directions, orthogonal, strict=True):
            scale = 0.2 * max(direction.shape) ** 0.5
            update = result.mT if param.shape[0] > param.shape[1] else result
            param.mul_(1 - lr * weight_decay).add_(update, alpha=-lr * scale)
