from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.config import RopeShape
from deepdraft.infer.errors import UnsupportedModel
from deepdraft.infer.layers.rope import (
    Rotary,
    adjacent_pairs,
    attention_factor,
    inverse_frequencies,
    rotate,
    softmax_factor,
)

transformers = pytest.importorskip("transformers")
rope_utils = pytest.importorskip("transformers.modeling_rope_utils")

YARN = RopeShape(theta=10_000.0, kind="yarn", factor=40.0, original_max_position_embeddings=4096)
LLAMA3 = RopeShape(
    theta=500_000.0,
    kind="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=8192,
)

thetas = st.sampled_from([10_000.0, 50_000.0, 500_000.0])
dims = st.sampled_from([2, 8, 16, 64, 128])
factors = st.floats(1.0, 300.0)
original_lens = st.sampled_from([64, 1024, 4096, 8192])


def by_transformers(rope: RopeShape, dim: int) -> tuple[torch.Tensor, float]:
    """transformers' frequencies and attention factor of the same parameters."""
    names = (
        "factor",
        "original_max_position_embeddings",
        "low_freq_factor",
        "high_freq_factor",
        "beta_fast",
        "beta_slow",
        "mscale",
        "mscale_all_dim",
        "attention_factor",
    )
    stated = {name: getattr(rope, name) for name in names if getattr(rope, name) is not None}
    parameters = {"rope_type": rope.kind, "rope_theta": rope.theta, **stated}
    if rope.kind == "yarn":
        parameters["truncate"] = rope.is_truncated
    config = transformers.LlamaConfig(head_dim=dim, rope_parameters=parameters)
    frequencies, factor = rope_utils.ROPE_INIT_FUNCTIONS[rope.kind](config, torch.device("cpu"))
    return frequencies, factor


def test_the_default_frequencies_are_powers_of_theta() -> None:
    expected = [1.0, 10_000**-0.25, 10_000**-0.5, 10_000**-0.75]
    found = inverse_frequencies(RopeShape(theta=10_000.0), 8)
    assert found.dtype == torch.float32
    assert found.tolist() == pytest.approx(expected, rel=1e-6)


@settings(deadline=None)
@given(thetas, dims, factors)
def test_linear_is_that_of_transformers(theta: float, dim: int, factor: float) -> None:
    rope = RopeShape(theta=theta, kind="linear", factor=factor)
    assert torch.equal(inverse_frequencies(rope, dim), by_transformers(rope, dim)[0])


@settings(deadline=None)
@given(thetas, dims, factors, original_lens, st.sampled_from([(1.0, 4.0), (0.5, 2.0), (1.0, 32.0)]))
def test_llama3_is_that_of_transformers(
    theta: float, dim: int, factor: float, original_len: int, low_and_high: tuple[float, float]
) -> None:
    rope = RopeShape(
        theta=theta,
        kind="llama3",
        factor=factor,
        low_freq_factor=low_and_high[0],
        high_freq_factor=low_and_high[1],
        original_max_position_embeddings=original_len,
    )
    assert torch.equal(inverse_frequencies(rope, dim), by_transformers(rope, dim)[0])


@settings(deadline=None)
@given(
    theta=thetas,
    dim=dims,
    factor=factors,
    original_len=original_lens,
    betas=st.sampled_from([(None, None), (32.0, 1.0), (4.0, 2.0)]),
    mscales=st.sampled_from([(None, None), (1.0, 1.0), (0.7, 1.0), (1.0, None), (None, 1.0)]),
    stated_factor=st.sampled_from([None, 1.25]),
    is_truncated=st.booleans(),
)
def test_yarn_is_that_of_transformers(
    theta: float,
    dim: int,
    factor: float,
    original_len: int,
    betas: tuple[float | None, float | None],
    mscales: tuple[float | None, float | None],
    stated_factor: float | None,
    is_truncated: bool,
) -> None:
    rope = RopeShape(
        theta=theta,
        kind="yarn",
        factor=factor,
        original_max_position_embeddings=original_len,
        beta_fast=betas[0],
        beta_slow=betas[1],
        mscale=mscales[0],
        mscale_all_dim=mscales[1],
        attention_factor=stated_factor,
        is_truncated=is_truncated,
    )
    frequencies, factor_of_attention = by_transformers(rope, dim)
    assert torch.equal(inverse_frequencies(rope, dim), frequencies)
    assert attention_factor(rope) == factor_of_attention


@pytest.mark.parametrize("rope", [RopeShape(theta=1e4), LLAMA3, RopeShape(theta=1e4, kind="linear", factor=2.0)])
def test_only_yarn_scales_attention(rope: RopeShape) -> None:
    assert attention_factor(rope) == 1.0
    assert softmax_factor(rope) == 1.0


def test_deepseeks_softmax_factor_is_the_square_of_mscale_all_dims() -> None:
    rope = dataclasses.replace(YARN, mscale=1.0, mscale_all_dim=1.0)
    assert softmax_factor(rope) == pytest.approx((0.1 * math.log(40.0) + 1) ** 2)
    assert attention_factor(rope) == 1.0
    assert softmax_factor(YARN) == 1.0
    assert softmax_factor(dataclasses.replace(rope, factor=1.0)) == 1.0


@pytest.mark.parametrize(
    ("rope", "field"),
    [
        (RopeShape(theta=1e4, kind="linear"), "factor"),
        (dataclasses.replace(YARN, factor=None), "factor"),
        (dataclasses.replace(YARN, original_max_position_embeddings=None), "original_max_position_embeddings"),
        (dataclasses.replace(LLAMA3, low_freq_factor=None), "low_freq_factor"),
        (dataclasses.replace(LLAMA3, high_freq_factor=None), "high_freq_factor"),
        (dataclasses.replace(YARN, kind="longrope"), "rope_type"),
    ],
)
def test_what_a_kind_needs_and_has_not_is_named(rope: RopeShape, field: str) -> None:
    with pytest.raises(UnsupportedModel, match=field):
        inverse_frequencies(rope, 16)


def test_a_pair_is_turned_by_position_times_frequency() -> None:
    rotary = Rotary.of(RopeShape(theta=100.0), 4)  # 1 and 0.1 radians per position
    turns = rotary.turns(torch.tensor([0, 3]), torch.float64)
    x = torch.tensor([[1.0, 0.0, 0.0, 2.0], [1.0, 0.0, 0.0, 2.0]], dtype=torch.float64)
    expected = [
        [1.0, 0.0, 0.0, 2.0],
        [math.cos(3), math.sin(3), -2 * math.sin(0.3), 2 * math.cos(0.3)],
    ]
    assert torch.allclose(rotate(x, turns), torch.tensor(expected, dtype=torch.float64), atol=1e-7)


@settings(deadline=None)
@given(st.integers(0, 200_000), st.integers(0, 1000), st.integers(0, 50_000))
def test_scores_depend_on_distance_alone(position: int, distance: int, shift: int) -> None:
    generator = torch.Generator().manual_seed(position)
    query, key = torch.randn(2, 1, 16, generator=generator, dtype=torch.float64)
    rotary = Rotary.of(RopeShape(theta=10_000.0), 16)

    def score(first: int) -> float:
        turns = rotary.turns(torch.tensor([first + distance, first]), torch.float64)
        return float((rotate(query, turns[:1]) * rotate(key, turns[1:])).sum())

    # an angle of 250,000 radians has 0.016 of float32's steps
    assert score(position) == pytest.approx(score(position + shift), abs=0.3)
    assert score(position % 100) == pytest.approx(score(position % 100 + shift % 100), abs=1e-3)


def test_the_attention_factor_scales_what_is_rotated() -> None:
    rope = dataclasses.replace(YARN, attention_factor=1.5)
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, Rotary.of(rope, 8).turns(torch.tensor([0, 9, 70_000]), x.dtype))
    assert torch.allclose(turned.norm(dim=-1), 1.5 * x.norm(dim=-1), rtol=1e-5)


def test_half_a_head_apart_is_the_same_after_reordering() -> None:
    """transformers' rotate_half on the checkpoint's order, ours on the adjacent one."""
    x = torch.randn(5, 2, 16, generator=torch.Generator().manual_seed(1))
    rotary = Rotary.of(RopeShape(theta=10_000.0), 16)
    turns = rotary.turns(torch.arange(5), x.dtype).unsqueeze(1)
    cosines, sines = torch.cat((turns.real,) * 2, -1), torch.cat((turns.imag,) * 2, -1)
    expected = x * cosines + torch.cat((-x[..., 8:], x[..., :8]), -1) * sines
    order = adjacent_pairs(16)
    assert torch.allclose(rotate(x[..., order], turns), expected[..., order], atol=1e-6)


@settings(deadline=None)
@given(st.integers(1, 100))
def test_adjacent_pairs_is_a_permutation_of_pairs(half: int) -> None:
    order = adjacent_pairs(2 * half)
    assert sorted(order.tolist()) == list(range(2 * half))
    assert (order[1::2] - order[0::2] == half).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rotated_in_float32(dtype: torch.dtype) -> None:
    x = torch.randn(4, 16, generator=torch.Generator().manual_seed(2)).to(dtype)
    turns = Rotary.of(RopeShape(theta=10_000.0), 16).turns(torch.arange(4) * 1000, dtype)
    assert turns.dtype == torch.complex64
    turned = rotate(x, turns)
    assert turned.dtype == dtype
    assert torch.equal(turned, rotate(x.float(), turns).to(dtype))


def test_a_slice_of_a_wider_row_is_rotated() -> None:
    whole: Any = torch.randn(3, 2, 24, generator=torch.Generator().manual_seed(3))
    turns = Rotary.of(RopeShape(theta=10_000.0), 8).turns(torch.arange(3), whole.dtype).unsqueeze(1)
    assert torch.equal(rotate(whole[..., 16:], turns), rotate(whole[..., 16:].contiguous(), turns))
