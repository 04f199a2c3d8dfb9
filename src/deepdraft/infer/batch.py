"""The tokens of one forward pass: what a model is given besides the pool and an attention back end.

Shape letters: T tokens of all requests together, N rows whose logits are wanted.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from deepdraft.infer.kernels.plan import AttentionPlan


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Tokens and where they belong."""

    token_ids: Tensor
    """int64 [T]"""
    positions: Tensor
    """int64 [T]"""
    slots: Tensor
    """int64 [T]"""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One pass over any mixture of prompt chunks, decode rows and trees to verify."""

    token_ids: Tensor
    """int64 [T]"""
    positions: Tensor
    """int64 [T]; a tree's node stands at its depth, so positions may repeat"""
    slots: Tensor
    """int64 [T]: where each token's KV row is written"""
    plan: AttentionPlan
    logit_rows: Tensor
    """int64 [N], rows of T"""

    @property
    def rows(self) -> Rows:
        """Its tokens, without what attention needs."""
        return Rows(self.token_ids, self.positions, self.slots)
