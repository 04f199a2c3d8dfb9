"""Muon for the matrices, and the router's bias rule. AdamW for the rest is torch's own.

Muon (Jordan et al., kellerjordan.github.io/posts/muon) replaces the momentum's singular values by about one; the step
is scaled to AdamW's size as Moonlight does (arXiv 2502.16982, equation 4), so both share a range of learning rates.
Shape letters: M matrices, R rows, C columns, E experts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

import torch
from torch import nn

from deepdraft.infer.drafter_training.muon import orthogonalized


class Muon(torch.optim.Optimizer):
    """Muon with Nesterov momentum and decoupled weight decay for parameters of two or three dimensions.

    A parameter (E, R, C) is E matrices; those named in `halved` are (E, 2R, C) with two matrices stacked by rows, as
    transformers stores experts' gate and up projections. Matrices of one shape are orthogonalized in one batch.
    """

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        halved: Iterable[nn.Parameter] = (),
        matmul_dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        self._halved = {id(param) for param in halved}
        self._matmul_dtype = matmul_dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            directions: dict[tuple[int, int], list[tuple[nn.Parameter, torch.Tensor]]] = defaultdict(list)
            for param in group["params"]:
                if param.grad is None:
                    continue
                direction = self._matrices(param, self._nesterov(param, group["momentum"]))
                if direction.shape[1] > direction.shape[2]:
                    direction = direction.mT
                directions[direction.shape[1], direction.shape[2]].append((param, direction))
            for same_shape in directions.values():
                self._move(same_shape, group["lr"], group["weight_decay"])

    def _nesterov(self, param: nn.Parameter, momentum: float) -> torch.Tensor:
        state = self.state[param]
        if not state:
            state["momentum"] = torch.zeros_like(param)
        running: torch.Tensor = state["momentum"]
        assert param.grad is not None
        running.lerp_(param.grad, 1 - momentum)
        return torch.lerp(param.grad, running, momentum)

    def _matrices(self, param: nn.Parameter, values: torch.Tensor) -> torch.Tensor:
        """`values` of a parameter as its matrices (M, R, C), a view."""
        if values.ndim == 2:
            return values.unsqueeze(0)
        if id(param) in self._halved:
            num_experts, num_rows, num_columns = values.shape
            return values.view(2 * num_experts, num_rows // 2, num_columns)
        return values

    def _move(self, directions: list[tuple[nn.Parameter, torch.Tensor]], lr: float, weight_decay: float) -> None:
        stacked = torch.cat([direction for _, direction in directions])
        orthogonal = orthogonalized(stacked, self._matmul_dtype)
        results = torch.split(orthogonal, [len(direction) for _, direction in directions])
        for (param, direction), result in zip(directions, results, strict=True):
            scale = 0.2 * max(direction.shape[1:]) ** 0.5
            matrices = self._matrices(param, param.data)
            update = result.mT if matrices.shape[1] > matrices.shape[2] else result
            matrices.mul_(1 - lr * weight_decay).add_(update, alpha=-lr * scale)


def split_parameters(model: nn.Module) -> tuple[list[nn.Parameter], list[nn.Parameter], list[nn.Parameter]]:
    """(matrices for Muon, those of them that stack gate and up, the rest for AdamW: embedding, norms, routers)."""
    matrices, halved, rest = [], [], []
    for name, param in model.named_parameters():
        if param.ndim < 2 or "embed_tokens" in name or "lm_head" in name or name.endswith("gate.weight"):
            rest.append(param)
            continue
        matrices.append(param)
        if name.endswith("experts.gate_up_proj"):
            halved.append(param)
    return matrices, halved, rest


@torch.no_grad()
def balance(bias: torch.Tensor, load: torch.Tensor, rate: float) -> None:
    """Move a router's choice bias (E,) by `rate` towards experts with less than the mean `load` (E,), in place.

    The auxiliary-loss-free rule of DeepSeek-V3 (arXiv 2408.15664, algorithm 1): the sign alone counts.
    """
    load = load.to(torch.float32)
    bias.add_(torch.sign(load.mean() - load), alpha=rate)
