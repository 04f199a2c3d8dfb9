from __future__ import annotations

import pytest
import torch

from deepdraft.infer.kernels.native_backend import missing
from deepdraft.infer.layers.mlp import Mlp


@pytest.mark.parametrize("num_tokens", [0, 1, 7])
def test_it_is_the_definition(num_tokens: int) -> None:
    generator = torch.Generator().manual_seed(0)
    gate, up = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    down = torch.randn(4, 6, generator=generator, dtype=torch.float64)
    x = torch.randn(num_tokens, 4, generator=generator, dtype=torch.float64)
    gates = x @ gate.T
    expected = (gates * gates.sigmoid() * (x @ up.T)) @ down.T
    assert torch.allclose(Mlp(torch.cat((gate, up)), down)(x), expected, rtol=1e-12)


@pytest.mark.parametrize("num_tokens", [0, 1, 7])
@pytest.mark.parametrize("is_split", [False, True])
def test_one_native_call_is_the_definition_too(num_tokens: int, is_split: bool) -> None:
    """In float32 where the library was built; rows that don't lie side by side go to torch."""
    generator = torch.Generator().manual_seed(0)
    mlp = Mlp(torch.randn(12, 4, generator=generator), torch.randn(4, 6, generator=generator))
    assert (mlp.native is None) == (missing() is not None)
    x = torch.randn(num_tokens, 8, generator=generator)[:, ::2]
    assert torch.allclose(mlp(x if is_split else x.contiguous()), mlp.by_torch(x), rtol=1e-5, atol=1e-5)


def test_what_is_trained_stays_with_torch() -> None:
    mlp = Mlp(torch.ones(12, 4, requires_grad=True), torch.ones(4, 6))
    mlp(torch.ones(3, 4)).sum().backward()
    assert mlp.native is None
    assert mlp.gate_up.grad is not None
