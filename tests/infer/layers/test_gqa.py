"""Grouped-query attention against its definition, head by head."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from deepdraft.infer.config import GqaShape
from deepdraft.infer.kv.layout import LayerShape
from deepdraft.infer.layers.gqa import GroupedQueryAttention
from deepdraft.infer.layers.norm import RmsNorm
from deepdraft.infer.layers.rope import rotate

HIDDEN = 20


def attention_of(*, has_qk_norm: bool, has_bias: bool) -> GroupedQueryAttention:
    generator = torch.Generator().manual_seed(0)

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    shape = GqaShape(num_qo_heads=6, num_kv_heads=2, head_dim=4, has_qk_norm=has_qk_norm, has_bias=has_bias)
    return GroupedQueryAttention(
        shape=shape,
        qkv=random(40, HIDDEN),
        qkv_bias=random(40) if has_bias else None,
        qk_norm=RmsNorm.of(random(8, 4), 1e-6) if has_qk_norm else None,
        out=random(HIDDEN, 24),
        out_bias=random(HIDDEN) if has_bias else None,
    )


def heads_by_definition(attention: GroupedQueryAttention, x: Tensor, turns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries [T, 6, 4], keys and values [T, 2, 4]."""
    heads = x @ attention.qkv.T
    if attention.qkv_bias is not None:
        heads = heads + attention.qkv_bias
    heads = heads.view(len(x), 10, 4)
    turned = heads[:, :8] if attention.qk_norm is None else attention.qk_norm(heads[:, :8])
    turned = torch.stack([rotate(turned[:, head], turns[:, 0]) for head in range(8)], dim=1)
    return turned[:, :6], turned[:, 6:], heads[:, 8:]


def by_definition(attention: GroupedQueryAttention, x: Tensor, turns: Tensor) -> Tensor:
    queries, keys, values = heads_by_definition(attention, x, turns)
    unseen = torch.ones(len(x), len(x), dtype=torch.bool).triu(1)
    outs = []
    for head in range(6):
        scores = (queries[:, head] @ keys[:, head // 3].T / 2).masked_fill(unseen, float("-inf"))
        outs.append(scores.softmax(-1) @ values[:, head // 3])
    out = torch.cat(outs, -1) @ attention.out.T
    return out if attention.out_bias is None else out + attention.out_bias


@pytest.mark.parametrize("has_qk_norm", [False, True])
@pytest.mark.parametrize("has_bias", [False, True])
def test_it_is_the_definition(has_qk_norm: bool, has_bias: bool, one_layer: Any) -> None:
    attention = attention_of(has_qk_norm=has_qk_norm, has_bias=has_bias)
    lengths = (6, 1, 9)
    at = one_layer(LayerShape(2, 4, 4, is_latent=False), 4, lengths)
    x = torch.randn(sum(lengths), HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = at.run(attention, x)
    parts = zip(x.split(lengths), at.turns.split(lengths), strict=True)
    expected = torch.cat([by_definition(attention, rows, turns) for rows, turns in parts])
    assert torch.allclose(found, expected, rtol=1e-10, atol=1e-10)


def test_the_pool_holds_rotated_keys_and_plain_values(one_layer: Any) -> None:
    attention = attention_of(has_qk_norm=True, has_bias=True)
    at = one_layer(LayerShape(2, 4, 4, is_latent=False), 4, (7,))
    x = torch.randn(7, HIDDEN, dtype=torch.float64)
    at.run(attention, x)
    _, keys, values = heads_by_definition(attention, x, at.turns)
    assert torch.allclose(at.pool.layer(0).keys[at.slots], keys, rtol=1e-12)
    assert torch.allclose(at.pool.layer(0).values[at.slots], values, rtol=1e-12)
