"""Grouped-query attention (Ainslie et al., arXiv 2305.13245), with Qwen3's norm of queries and keys.

Shape letters: T tokens, Q query rows, H hidden, Hq query heads, Hk key/value heads, D head dimension.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.infer.config import GqaShape
from deepdraft.infer.layers.forward_pass import ForwardPass, Queries
from deepdraft.infer.layers.norm import RmsNorm
from deepdraft.infer.layers.rope import rotate


@dataclass(frozen=True, slots=True, eq=False)
class GroupedQueryAttention:
    """One layer's attention. Rows of queries and keys (their biases and norms too) have rotary pairs side by side."""

    shape: GqaShape
    qkv: Tensor
    """[(Hq + 2 * Hk) * D, H]: queries, keys and values in one matrix, so that they are one call"""
    qkv_bias: Tensor | None
    qk_norm: RmsNorm | None
    """Its weight is [Hq + Hk, D]: the query norm's for each query head, then the key norm's"""
    out: Tensor
    """[H, Hq * D]"""
    out_bias: Tensor | None

    def __call__(self, x: Tensor, layer_index: int, forward_pass: ForwardPass, queries: Queries) -> Tensor:
        """Write the keys and values of x [T, H] into the pool and return attention's output [Q, H]."""
        num_heads, num_kv_heads = self.shape.num_qo_heads, self.shape.num_kv_heads
        heads = F.linear(x, self.qkv, self.qkv_bias).view(x.shape[0], -1, self.shape.head_dim)
        turned, values = heads.tensor_split((num_heads + num_kv_heads,), dim=1)
        if self.qk_norm is not None:
            turned = self.qk_norm(turned)
        q, keys = rotate(turned, forward_pass.turns.unsqueeze(1)).tensor_split((num_heads,), dim=1)
        forward_pass.pool.write(layer_index, forward_pass.slots, keys, values)
        group = queries.few  # all requests are in it: there is one form only
        if group is None:
            return x.new_zeros(0, x.shape[-1])
        layer = forward_pass.pool.layer(layer_index)
        scale = self.shape.head_dim**-0.5
        attended = forward_pass.attention.attend(queries.of(q), layer, group.plan, scale=scale).out
        return F.linear(attended.flatten(-2), self.out, self.out_bias)
