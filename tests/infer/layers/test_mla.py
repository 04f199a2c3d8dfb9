"""Latent attention against its definition: keys and values of every head computed outright."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from deepdraft.infer.config import MlaShape
from deepdraft.infer.kv.layout import LayerShape
from deepdraft.infer.layers.mla import LatentAttention, LowRankQueries
from deepdraft.infer.layers.norm import RmsNorm
from deepdraft.infer.layers.rope import rotate

HIDDEN = 20
SHAPE = MlaShape(
    num_qo_heads=3, q_lora_rank=10, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5
)
LAYER = LayerShape(1, 16, 12, is_latent=True)


def attention_of(shape: MlaShape) -> LatentAttention:
    generator = torch.Generator().manual_seed(0)

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    num_heads, head_dim = shape.num_qo_heads, shape.qk_nope_head_dim + shape.qk_rope_head_dim
    rank = shape.q_lora_rank
    low_rank = (
        None if rank is None else LowRankQueries(RmsNorm.of(random(rank), 1e-6), random(num_heads * head_dim, rank))
    )
    return LatentAttention(
        shape=shape,
        down=random((rank or num_heads * head_dim) + shape.kv_lora_rank + shape.qk_rope_head_dim, HIDDEN),
        low_rank_queries=low_rank,
        latent_norm=RmsNorm.of(random(shape.kv_lora_rank), 1e-6),
        key_up=random(num_heads, shape.qk_nope_head_dim, shape.kv_lora_rank),
        value_up=random(num_heads, shape.v_head_dim, shape.kv_lora_rank),
        out=random(HIDDEN, num_heads * shape.v_head_dim),
        scale=0.07,
    )


def rows_by_definition(attention: LatentAttention, x: Tensor, turns: Tensor) -> Tensor:
    """What the cache holds: the normed latent, then the rotated key."""
    latent_dim = attention.shape.kv_lora_rank
    down = (x @ attention.down.T)[:, -latent_dim - attention.shape.qk_rope_head_dim :]
    return torch.cat((attention.latent_norm(down[:, :latent_dim]), rotate(down[:, latent_dim:], turns[:, 0])), -1)


def by_definition(attention: LatentAttention, x: Tensor, turns: Tensor) -> Tensor:
    """One request, all of its tokens."""
    shape = attention.shape
    q = (x @ attention.down.T)[:, : -shape.kv_lora_rank - shape.qk_rope_head_dim]
    if attention.low_rank_queries is not None:
        q = attention.low_rank_queries.norm(q) @ attention.low_rank_queries.up.T
    q = q.view(len(x), shape.num_qo_heads, -1)
    q = torch.cat((q[..., : shape.qk_nope_head_dim], rotate(q[..., shape.qk_nope_head_dim :], turns)), -1)
    rows = rows_by_definition(attention, x, turns)
    latents, rotary_keys = rows[:, : shape.kv_lora_rank], rows[:, shape.kv_lora_rank :]
    unseen = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    heads = []
    for head in range(shape.num_qo_heads):
        keys = torch.cat((latents @ attention.key_up[head].T, rotary_keys), -1)
        scores = (attention.scale * q[:, head] @ keys.T).masked_fill(unseen, float("-inf"))
        heads.append(scores.softmax(-1) @ latents @ attention.value_up[head].T)
    return torch.cat(heads, -1) @ attention.out.T


@pytest.mark.parametrize("shape", [SHAPE, dataclasses.replace(SHAPE, q_lora_rank=None)], ids=["low rank", "plain"])
@pytest.mark.parametrize("many_from", [None, 1, 5], ids=["absorbed", "expanded", "by request"])
def test_it_is_the_definition(shape: MlaShape, many_from: int | None, one_layer: Any) -> None:
    """Requests with few queries stand between those with many."""
    attention = attention_of(shape)
    lengths = (6, 1, 9, 3)
    at = one_layer(LAYER, shape.qk_rope_head_dim, lengths)
    x = torch.randn(sum(lengths), HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = at.run(attention, x, many_from)
    parts = zip(x.split(lengths), at.turns.split(lengths), strict=True)
    expected = torch.cat([by_definition(attention, rows, turns) for rows, turns in parts])
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_the_pool_holds_the_normed_latent_and_the_rotated_key(one_layer: Any) -> None:
    attention = attention_of(SHAPE)
    at = one_layer(LAYER, SHAPE.qk_rope_head_dim, (7,))
    x = torch.randn(7, HIDDEN, dtype=torch.float64)
    at.run(attention, x)
    written = at.pool.layer(0).keys[at.slots, 0]
    assert torch.allclose(written, rows_by_definition(attention, x, at.turns), rtol=1e-12)
