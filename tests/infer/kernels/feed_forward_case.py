"""Feed-forward layers with random weights, and what float64 makes of the very same numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from deepdraft.infer.config import MoeShape
from deepdraft.infer.kernels.native_experts import MlpWeights, NativeFeedForward, RouterWeights
from deepdraft.infer.layers.experts import Moe, Router
from deepdraft.infer.layers.mlp import Mlp


def shape_of(
    num_experts: int = 16,
    num_experts_per_tok: int = 2,
    *,
    num_groups: int = 1,
    num_groups_per_tok: int = 1,
    norm_topk_prob: bool = True,
) -> MoeShape:
    return MoeShape(
        num_experts=num_experts,
        num_experts_per_tok=num_experts_per_tok,
        moe_intermediate_size=0,
        num_shared_experts=1,
        num_groups=num_groups,
        num_groups_per_tok=num_groups_per_tok,
        norm_topk_prob=norm_topk_prob,
        routed_scaling_factor=2.5,
        num_dense_layers=0,
    )


@dataclass(frozen=True)
class Case:
    """A layer's weights and rows [T, H] for it."""

    shared: MlpWeights | None
    router: RouterWeights | None
    experts: tuple[MlpWeights, ...]
    x: Tensor

    def native(self, instruction_set: str | None = None) -> NativeFeedForward:
        return NativeFeedForward(self.shared, self.router, self.experts, instruction_set=instruction_set)

    def layer(self, dtype: torch.dtype) -> Moe | Mlp:
        """The layer in another dtype."""

        def mlp(weights: MlpWeights) -> Mlp:
            return Mlp(weights.gate_up.to(dtype), weights.down.to(dtype))

        if self.router is None:
            assert self.shared is not None
            return mlp(self.shared)
        router = Router(self.router.shape, self.router.weight.to(dtype), self.router.selection_bias.to(dtype))
        return Moe(router, tuple(map(mlp, self.experts)), self.shared and mlp(self.shared))

    def truth(self) -> Tensor:
        return self.layer(torch.float64).by_torch(self.x.double())

    def least_gap(self) -> float:
        """How clear the choice of experts is: the least difference, over rows, between the last that was chosen and
        the first that was not, among groups and among experts."""
        if self.router is None:
            return 1.0
        shape = self.router.shape
        ranks = (self.x.double() @ self.router.weight.double().T).sigmoid() + self.router.selection_bias.double()
        gaps = []
        if shape.num_groups_per_tok < shape.num_groups:
            by_group = ranks.view(len(ranks), shape.num_groups, -1)
            group_ranks = by_group.topk(2).values.sum(-1)
            gaps.append(_gap(group_ranks, shape.num_groups_per_tok))
            worst_open = group_ranks.topk(shape.num_groups_per_tok).values[:, -1:]
            ranks = by_group.masked_fill((group_ranks < worst_open).unsqueeze(-1), -torch.inf).flatten(-2)
        if shape.num_experts_per_tok < shape.num_experts:
            gaps.append(_gap(ranks, shape.num_experts_per_tok))
        return min(gaps, default=1.0)


def _gap(ranks: Tensor, num_chosen: int) -> float:
    best = ranks.topk(num_chosen + 1).values
    return float((best[:, -2] - best[:, -1]).min())


def case(
    shape: MoeShape | None,
    num_rows: int,
    *,
    hidden: int = 192,
    inner: int = 96,
    shared_inner: int | None = 96,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> Case:
    """shape None: a plain MLP of width shared_inner."""
    generator = torch.Generator().manual_seed(seed)

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator) * size[-1] ** -0.5

    def mlp(width: int) -> MlpWeights:
        return MlpWeights(random(2 * width, hidden).to(dtype), random(hidden, width).to(dtype))

    x = torch.randn(num_rows, hidden, generator=generator).to(dtype)
    shared = None if shared_inner is None else mlp(shared_inner)
    if shape is None:
        return Case(shared, None, (), x)
    router = RouterWeights(shape, random(shape.num_experts, hidden), 0.1 * random(1, shape.num_experts)[0])
    return Case(shared, router, tuple(mlp(inner) for _ in range(shape.num_experts)), x)
