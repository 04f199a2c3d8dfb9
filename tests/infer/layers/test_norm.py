from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.layers.norm import RmsNorm


def by_definition(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    x, weight = x.double(), weight.double()
    return weight * x / torch.sqrt((x**2).mean(-1, keepdim=True) + eps)


@settings(deadline=None)
@given(
    st.integers(1, 300),
    st.integers(0, 5),
    st.sampled_from([1e-6, 1e-5, 1e-3]),
    st.sampled_from([1e-12, 1e-6, 1e-3, 1.0, 1e6, 1e15]),
)
def test_it_is_the_definition(width: int, num_rows: int, eps: float, scale: float) -> None:
    """From values far below eps to values whose squares are near float32's limit."""
    generator = torch.Generator().manual_seed(width)
    x, weight = torch.randn(num_rows, width, generator=generator) * scale, torch.randn(width, generator=generator)
    expected = by_definition(x, weight, eps)
    assert torch.allclose(RmsNorm.of(weight, eps)(x).double(), expected, rtol=1e-5, atol=1e-30)


def test_float64_is_computed_in_float64() -> None:
    x, weight = torch.randn(2, 64, dtype=torch.float64), torch.randn(64, dtype=torch.float64)
    assert torch.allclose(RmsNorm.of(weight, 1e-6)(x), by_definition(x, weight, 1e-6), rtol=1e-14)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_normed_in_float32_and_rounded_once(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(4, 512, generator=generator).to(dtype), torch.randn(512, generator=generator)
    found = RmsNorm.of(weight, 1e-6)(x)
    assert found.dtype == dtype
    wide = by_definition(x, weight, 1e-6)
    assert ((found.double() - wide).abs() <= torch.finfo(dtype).eps * wide.abs() / 2 + 1e-6).all()


def test_zeros_stay_zeros() -> None:
    assert torch.equal(RmsNorm.of(torch.ones(8), 1e-6)(torch.zeros(2, 8)), torch.zeros(2, 8))


def test_a_weight_for_each_head() -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = torch.randn(5, 3, 16, generator=generator), torch.randn(3, 16, generator=generator)
    found = RmsNorm.of(weight, 1e-5)(x)
    for head in range(3):
        assert torch.allclose(found[:, head], RmsNorm.of(weight[head], 1e-5)(x[:, head]))
