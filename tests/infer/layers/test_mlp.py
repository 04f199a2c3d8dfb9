from __future__ import annotations

import pytest
import torch

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
