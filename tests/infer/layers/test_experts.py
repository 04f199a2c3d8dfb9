"""The router and the experts against their definition, written as plainly as it can be."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepdraft.infer.config import MoeShape
from deepdraft.infer.kernels.native_backend import missing
from deepdraft.infer.layers.experts import Moe, Router
from deepdraft.infer.layers.mlp import Mlp

HIDDEN, INNER = 8, 6


def shape_of(
    *,
    num_groups: int = 1,
    group_size: int = 8,
    num_groups_per_tok: int = 1,
    num_experts_per_tok: int = 2,
    norm_topk_prob: bool = True,
) -> MoeShape:
    return MoeShape(
        num_experts=num_groups * group_size,
        num_experts_per_tok=num_experts_per_tok,
        moe_intermediate_size=INNER,
        num_shared_experts=1,
        num_groups=num_groups,
        num_groups_per_tok=num_groups_per_tok,
        norm_topk_prob=norm_topk_prob,
        routed_scaling_factor=2.5,
        num_dense_layers=0,
    )


def moe_of(shape: MoeShape, seed: int = 0, *, has_shared: bool = True) -> Moe:
    generator = torch.Generator().manual_seed(seed)

    def random(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator, dtype=torch.float64)

    router = Router(shape, random(shape.num_experts, HIDDEN), random(shape.num_experts))
    experts = tuple(Mlp(random(2 * INNER, HIDDEN), random(HIDDEN, INNER)) for _ in range(shape.num_experts))
    return Moe(router, experts, Mlp(random(2 * INNER, HIDDEN), random(HIDDEN, INNER)) if has_shared else None)


def chosen_by_definition(router: Router, x: Tensor) -> dict[int, float]:
    """One token's experts and their weights (DeepSeek-V3, equations 12 to 16, and its group limit)."""
    shape = router.shape
    scores = [1 / (1 + math.exp(-float(row @ x))) for row in router.weight]
    ranks = [score + float(bias) for score, bias in zip(scores, router.selection_bias, strict=True)]
    group_size = shape.num_experts // shape.num_groups
    groups = [list(range(first, first + group_size)) for first in range(0, shape.num_experts, group_size)]
    groups.sort(key=lambda group: -sum(sorted((ranks[expert] for expert in group), reverse=True)[:2]))
    open_to = [expert for group in groups[: shape.num_groups_per_tok] for expert in group]
    best = sorted(open_to, key=lambda expert: -ranks[expert])[: shape.num_experts_per_tok]
    total = sum(scores[expert] for expert in best) if shape.norm_topk_prob else 1.0
    return {expert: scores[expert] / total * shape.routed_scaling_factor for expert in best}


def by_definition(moe: Moe, x: Tensor) -> Tensor:
    rows = []
    for row in x:
        out = moe.shared(row[None])[0] if moe.shared is not None else torch.zeros_like(row)
        for expert, weight in chosen_by_definition(moe.router, row).items():
            out = out + weight * moe.experts[expert](row[None])[0]
        rows.append(out)
    return torch.stack(rows)


@settings(deadline=None)
@given(
    num_groups=st.integers(1, 4),
    group_size=st.integers(2, 6),
    num_tokens=st.integers(1, 9),
    norm_topk_prob=st.booleans(),
    has_shared=st.booleans(),
    data=st.data(),
)
def test_it_is_the_definition(
    num_groups: int, group_size: int, num_tokens: int, norm_topk_prob: bool, has_shared: bool, data: st.DataObject
) -> None:
    num_groups_per_tok = data.draw(st.integers(1, num_groups))
    shape = shape_of(
        num_groups=num_groups,
        group_size=group_size,
        num_groups_per_tok=num_groups_per_tok,
        num_experts_per_tok=data.draw(st.integers(1, num_groups_per_tok * group_size)),
        norm_topk_prob=norm_topk_prob,
    )
    moe = moe_of(shape, data.draw(st.integers(0, 1000)), has_shared=has_shared)
    x = torch.randn(num_tokens, HIDDEN, dtype=torch.float64, generator=torch.Generator().manual_seed(num_tokens))
    assert torch.allclose(moe(x), by_definition(moe, x), rtol=1e-11, atol=1e-11)


def test_the_bias_chooses_but_does_not_weigh() -> None:
    shape = shape_of(num_experts_per_tok=1, norm_topk_prob=False)
    router = moe_of(shape).router
    bias = torch.zeros(8, dtype=torch.float64)
    bias[3] = 100.0
    chosen, weights = Router(shape, router.weight, bias)(torch.zeros(1, HIDDEN, dtype=torch.float64))
    assert chosen.tolist() == [[3]]
    assert weights.tolist() == [[0.5 * 2.5]]


@pytest.mark.parametrize("num_tokens", [1, 5])
def test_experts_that_were_not_chosen_take_no_part(num_tokens: int) -> None:
    """Weights of NaN, as a page that was never touched could be."""
    moe = moe_of(shape_of())
    x = torch.randn(1, HIDDEN, dtype=torch.float64).expand(num_tokens, -1)
    chosen = set(moe.router(x)[0].flatten().tolist())
    poison = Mlp(torch.full((2 * INNER, HIDDEN), math.nan), torch.full((HIDDEN, INNER), math.nan))
    experts = tuple(expert if index in chosen else poison for index, expert in enumerate(moe.experts))
    assert torch.equal(Moe(moe.router, experts, moe.shared)(x), moe(x))


def test_a_row_does_not_depend_on_the_others() -> None:
    moe = moe_of(shape_of())
    x = torch.randn(40, HIDDEN, dtype=torch.float64)
    alone = torch.cat([moe(row[None]) for row in x])
    assert torch.allclose(moe(x), alone, rtol=1e-12)
    assert torch.allclose(moe(x.flip(0)).flip(0), alone, rtol=1e-12)


def test_all_tokens_at_one_expert_and_no_tokens() -> None:
    shape = shape_of(num_experts_per_tok=1)
    bias = torch.zeros(8, dtype=torch.float64)
    bias[5] = 100.0
    made = moe_of(shape)
    moe = Moe(Router(shape, made.router.weight, bias), made.experts, made.shared)
    x = torch.randn(6, HIDDEN, dtype=torch.float64)
    assert torch.allclose(moe(x), by_definition(moe, x))
    assert moe(x[:0]).shape == (0, HIDDEN)


def test_the_input_is_left_as_it_was() -> None:
    moe = moe_of(shape_of(), has_shared=False)
    for num_tokens in (1, 3):
        x = torch.randn(num_tokens, HIDDEN, dtype=torch.float64)
        before = x.clone()
        moe(x)
        assert torch.equal(x, before)


@pytest.mark.parametrize("has_shared", [False, True])
@pytest.mark.parametrize("num_tokens", [0, 1, 17, 3000])
def test_one_native_call_is_torchs_path_too(num_tokens: int, has_shared: bool) -> None:
    """In float32 where the library was built; so many rows that they go to torch, and none, as well."""
    made = moe_of(shape_of(num_groups=4, group_size=4, num_groups_per_tok=2), has_shared=has_shared)
    router = Router(made.router.shape, made.router.weight.float(), made.router.selection_bias.float())
    experts = tuple(Mlp(expert.gate_up.float(), expert.down.float()) for expert in made.experts)
    shared = made.shared and Mlp(made.shared.gate_up.float(), made.shared.down.float())
    moe = Moe(router, experts, shared)
    assert (moe.native is None) == (missing() is not None)
    x = torch.randn(num_tokens, HIDDEN, generator=torch.Generator().manual_seed(1))
    assert torch.allclose(moe(x), moe.by_torch(x), rtol=1e-4, atol=1e-4)


def test_routing_of_a_half_precision_model_is_in_float32() -> None:
    router = moe_of(shape_of()).router
    wide = Router(router.shape, router.weight.float(), router.selection_bias.float())
    x = torch.randn(4, HIDDEN, generator=torch.Generator().manual_seed(0)).bfloat16()
    chosen, weights = wide(x)
    expected, expected_weights = wide(x.float())
    assert weights.dtype == torch.float32
    assert torch.equal(chosen, expected)
    assert torch.equal(weights, expected_weights)
