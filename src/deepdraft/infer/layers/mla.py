"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1): the cache holds latent rows, not keys and values.

Two forms give the same result. Absorbed: queries are taken down into the latent space and attend to the rows as they
lie in the cache; cheapest for few queries. Expanded: keys and values of every head are computed from the rows again;
dearer once, but then each query meets narrower keys, so it is the form for many queries.

Shape letters: T tokens, Q query rows, H hidden, Hq heads, L latent rank (kv_lora_rank), Dn and Dr query dimensions
without and with rotary embedding, Dv value dimensions, Lq rank of the queries' low-rank step.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from deepdraft.infer.config import MlaShape
from deepdraft.infer.kernels.plan import LayerKv
from deepdraft.infer.layers.forward_pass import ForwardPass, Queries, QueryGroup
from deepdraft.infer.layers.norm import RmsNorm
from deepdraft.infer.layers.rope import rotate


@dataclass(frozen=True, slots=True, eq=False)
class LowRankQueries:
    """Queries by way of a low-rank step: up @ norm(down @ x). `down` is part of the layer's own first matrix."""

    norm: RmsNorm
    up: Tensor
    """[Hq * (Dn + Dr), Lq]"""


@dataclass(frozen=True, slots=True, eq=False)
class LatentAttention:
    """One layer's attention. Rotary rows of queries and keys have their pairs side by side."""

    shape: MlaShape
    down: Tensor
    """[W + L + Dr, H]: to the queries (W = Lq) or straight (W = Hq * (Dn + Dr)), the latent and the rotary key"""
    low_rank_queries: LowRankQueries | None
    latent_norm: RmsNorm
    key_up: Tensor
    """[Hq, Dn, L]"""
    value_up: Tensor
    """[Hq, Dv, L]"""
    out: Tensor
    """[H, Hq * Dv]"""
    scale: float
    """Of the softmax, YaRN's part included"""

    def __call__(self, x: Tensor, layer_index: int, forward_pass: ForwardPass, queries: Queries) -> Tensor:
        """Write the latent rows of x [T, H] into the pool and return attention's output [Q, H]."""
        latent_dim, rotary_dim = self.shape.kv_lora_rank, self.shape.qk_rope_head_dim
        down = F.linear(x, self.down)
        widths = (down.shape[-1] - latent_dim - rotary_dim, latent_dim, rotary_dim)
        q, latents, rotary_keys = torch.split_with_sizes(down, widths, dim=-1)
        rows = torch.cat((self.latent_norm(latents), rotate(rotary_keys, forward_pass.turns)), dim=-1)
        forward_pass.pool.write(layer_index, forward_pass.slots, rows.unsqueeze(1), None)
        if queries.few is None and queries.many is None:
            return x.new_zeros(0, x.shape[-1])
        q = queries.of(q)
        if self.low_rank_queries is not None:
            q = F.linear(self.low_rank_queries.norm(q), self.low_rank_queries.up)
        attended = self._attend(q, forward_pass, forward_pass.pool.layer(layer_index), queries)
        return F.linear(attended, self.out)

    def _attend(self, q: Tensor, forward_pass: ForwardPass, layer: LayerKv, queries: Queries) -> Tensor:
        """[Q, Hq * Dv] for flat queries q."""
        heads = q.view(q.shape[0], self.shape.num_qo_heads, -1)
        plain, rotary = torch.split_with_sizes(
            heads, (self.shape.qk_nope_head_dim, self.shape.qk_rope_head_dim), dim=-1
        )
        rotary = rotate(rotary, queries.turns)
        few, many = queries.few, queries.many
        if few is not None and many is None:
            return self._absorbed(plain, rotary, forward_pass, layer, few)
        if many is not None and few is None:
            return self._expanded(plain, rotary, forward_pass, layer, many)
        attended = q.new_zeros(q.shape[0], self.out.shape[1])
        if few is not None and many is not None:
            for group, form in ((few, self._absorbed), (many, self._expanded)):
                attended[group.rows] = form(plain[group.rows], rotary[group.rows], forward_pass, layer, group)
        return attended

    def _absorbed(
        self, plain: Tensor, rotary: Tensor, forward_pass: ForwardPass, layer: LayerKv, group: QueryGroup
    ) -> Tensor:
        latent = torch.bmm(plain.transpose(0, 1), self.key_up).transpose(0, 1)
        absorbed = torch.cat((latent, rotary), dim=-1)
        attended = forward_pass.attention.attend(absorbed, layer, group.plan, scale=self.scale).out
        return torch.bmm(attended.transpose(0, 1), self.value_up.mT).transpose(0, 1).flatten(-2)

    def _expanded(
        self, plain: Tensor, rotary: Tensor, forward_pass: ForwardPass, layer: LayerKv, group: QueryGroup
    ) -> Tensor:
        attended = forward_pass.attention.attend_expanded(
            torch.cat((plain, rotary), dim=-1),
            layer,
            group.plan,
            key_up=self.key_up,
            value_up=self.value_up,
            scale=self.scale,
        ).out
        return attended.flatten(-2)
