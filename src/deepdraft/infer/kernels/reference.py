"""Attention by its definition: every score, one softmax. What every other back end must agree with.

Computes in the queries' dtype raised to at least float32; float64 queries give float64 all through. Not for long
contexts: it holds [Hq, q, kv_len] scores. Letters as in `plan`; q query rows of one request, n its cached tokens.
"""

from __future__ import annotations

import torch
from torch import Tensor

from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.plan import AttentionPlan, LayerKv


class ReferenceAttention:
    """The definition of right."""

    name = "reference"

    def attend(self, queries: Tensor, layer: LayerKv, plan: AttentionPlan, *, scale: float) -> Attended:
        """As `AttentionBackend.attend`."""
        dtype = _compute_dtype(queries)
        results = []
        for request, (first, stop) in enumerate(plan.query_rows):
            slots = plan.slots[request]
            keys, values = layer.keys[slots].to(dtype), layer.values[slots].to(dtype)
            mask = full_mask(plan, request)
            results.append(_attention(queries[first:stop].to(dtype), keys, values, mask, scale))
        return _joined(results, queries.dtype)

    def attend_expanded(
        self,
        queries: Tensor,
        layer: LayerKv,
        plan: AttentionPlan,
        *,
        key_up: Tensor,
        value_up: Tensor,
        scale: float,
    ) -> Attended:
        """As `AttentionBackend.attend_expanded`."""
        dtype = _compute_dtype(queries)
        latent_dim = key_up.shape[-1]
        results = []
        for request, (first, stop) in enumerate(plan.query_rows):
            rows = layer.keys[plan.slots[request], 0].to(dtype)
            latents, rotary = rows[:, :latent_dim], rows[:, latent_dim:]
            keys = torch.einsum("hdl,nl->nhd", key_up.to(dtype), latents)
            keys = torch.cat([keys, rotary[:, None].expand(-1, keys.shape[1], -1)], dim=-1)
            values = torch.einsum("hdl,nl->nhd", value_up.to(dtype), latents)
            mask = full_mask(plan, request)
            results.append(_attention(queries[first:stop].to(dtype), keys, values, mask, scale))
        return _joined(results, queries.dtype)


def full_mask(plan: AttentionPlan, request: int) -> Tensor:
    """bool [q, n]: which of the request's cached tokens each of its queries sees."""
    query_len, kv_len = plan.query_lens[request], plan.kv_lens[request]
    tail = plan.tail_masks[request]
    if tail is None:
        tail = torch.ones(query_len, query_len, dtype=torch.bool, device=plan.device).tril()
    prefix = torch.ones(query_len, kv_len - query_len, dtype=torch.bool, device=plan.device)
    return torch.cat([prefix, tail.to(plan.device)], dim=1)


def _attention(queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor, scale: float) -> Attended:
    """One request: queries [q, Hq, Dk], keys [n, Hk, Dk], values [n, Hk, Dv], mask [q, n]."""
    group_size = queries.shape[1] // keys.shape[1]
    keys, values = keys.repeat_interleave(group_size, dim=1), values.repeat_interleave(group_size, dim=1)
    scores = scale * torch.einsum("qhd,nhd->hqn", queries, keys)
    scores = scores.masked_fill(~mask, float("-inf"))
    out = torch.einsum("hqn,nhd->qhd", scores.softmax(dim=-1), values)
    return Attended(out, scores.logsumexp(dim=-1).T)


def _compute_dtype(queries: Tensor) -> torch.dtype:
    return torch.promote_types(queries.dtype, torch.float32)


def _joined(results: list[Attended], dtype: torch.dtype) -> Attended:
    return Attended(torch.cat([r.out for r in results]).to(dtype), torch.cat([r.lse for r in results]))
