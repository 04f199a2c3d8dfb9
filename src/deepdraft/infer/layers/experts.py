"""Mixture of experts as DeepSeek-V3 has it (arXiv 2412.19437, 2.1.2): router, chosen experts, shared experts.

Shape letters: T tokens, H hidden, E experts, G groups of experts, K experts a token.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.infer.config import MoeShape
from deepdraft.infer.kernels.native_experts import MlpWeights, NativeFeedForward, RouterWeights, native_feed_forward
from deepdraft.infer.layers.mlp import Mlp

_LEAST_SUM = 1e-20
"""Keeps the quotient of weights finite where all chosen scores are 0."""


@dataclass(frozen=True, slots=True, eq=False)
class Router:
    """Which experts a token goes to and with what weights: sigmoid scores, chosen with a bias that balances load."""

    shape: MoeShape
    weight: Tensor
    """[E, H], float32 or wider"""
    selection_bias: Tensor
    """[E], float32 or wider; takes part in the choice, not in the weights (e_score_correction_bias)"""

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Expert numbers int64 [T, K] and their weights [T, K], float32 or wider, for x [T, H]."""
        scores = F.linear(x.to(self.weight.dtype), self.weight).sigmoid()
        ranks = scores + self.selection_bias
        if self.shape.num_groups_per_tok < self.shape.num_groups:
            ranks = self._within_best_groups(ranks)
        chosen = ranks.topk(self.shape.num_experts_per_tok, dim=-1, sorted=False).indices
        weights = scores.gather(-1, chosen)
        if self.shape.norm_topk_prob:
            weights = weights / (weights.sum(dim=-1, keepdim=True) + _LEAST_SUM)
        return chosen, weights * self.shape.routed_scaling_factor

    def _within_best_groups(self, ranks: Tensor) -> Tensor:
        """Ranks [T, E] with all but the best groups' set to -inf; a group's rank is the sum of its two best."""
        num_groups = self.shape.num_groups
        by_group = ranks.view(ranks.shape[0], num_groups, ranks.shape[1] // num_groups)
        group_ranks = by_group.topk(2, dim=-1).values.sum(dim=-1)
        best = group_ranks.topk(self.shape.num_groups_per_tok, dim=-1, sorted=False).indices
        is_left_out = torch.ones_like(group_ranks, dtype=torch.bool).scatter_(-1, best, False)
        return by_group.masked_fill(is_left_out.unsqueeze(-1), float("-inf")).flatten(-2)


@dataclass(frozen=True, slots=True, eq=False)
class Moe:
    """The routed experts' weighted sum, plus the shared experts, which every token passes."""

    router: Router
    experts: tuple[Mlp, ...]
    shared: Mlp | None
    """All shared experts side by side are one wider MLP; None where the model has none."""
    native: NativeFeedForward | None = field(init=False, repr=False)
    """Router and experts as one call, for few rows; None where there is none for these weights"""

    def __post_init__(self) -> None:
        shared = MlpWeights(self.shared.gate_up, self.shared.down) if self.shared is not None else None
        router = RouterWeights(self.router.shape, self.router.weight, self.router.selection_bias)
        experts = [MlpWeights(expert.gate_up, expert.down) for expert in self.experts]
        object.__setattr__(self, "native", native_feed_forward(shared, router, experts))

    def __call__(self, x: Tensor) -> Tensor:
        """x [T, H] to [T, H]."""
        if self.native is not None and self.native.takes(x):
            return self.native(x)
        return self.by_torch(x)

    def by_torch(self, x: Tensor) -> Tensor:
        """The definition: what a native call must agree with."""
        chosen, weights = self.router(x)
        out = self.shared.by_torch(x) if self.shared is not None else torch.zeros_like(x)
        if x.shape[0] == 1:
            return self._one_token(x, chosen, weights, out)
        return self._many_tokens(x, chosen, weights, out)

    def _one_token(self, x: Tensor, chosen: Tensor, weights: Tensor, out: Tensor) -> Tensor:
        """Only the chosen experts' weights are read, and nothing is sorted, gathered or copied."""
        for expert, weight in zip(chosen.tolist()[0], weights.tolist()[0], strict=True):
            out.add_(self.experts[expert].by_torch(x), alpha=weight)
        return out

    def _many_tokens(self, x: Tensor, chosen: Tensor, weights: Tensor, out: Tensor) -> Tensor:
        """Tokens sorted by expert; one call for each expert that any token chose."""
        num_per_token = chosen.shape[1]
        pairs = chosen.flatten()
        order = pairs.argsort(stable=True)
        tokens = order // num_per_token
        inputs = x.index_select(0, tokens)
        counts = torch.bincount(pairs, minlength=len(self.experts)).tolist()
        hit = [expert for expert, count in zip(self.experts, counts, strict=True) if count]
        if not hit:
            return out
        rows = torch.split_with_sizes(inputs, [count for count in counts if count])
        results = [expert.by_torch(of_expert) for expert, of_expert in zip(hit, rows, strict=True)]
        weighted = torch.cat(results) * weights.flatten()[order].unsqueeze(-1)
        return out.index_add_(0, tokens, weighted.to(out.dtype))
