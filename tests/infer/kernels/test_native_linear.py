"""Products of few rows with a wide matrix agree with torch's, whatever the threads."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deepdraft.infer.kernels.native_backend import missing
from deepdraft.infer.kernels.native_linear import FEWEST_COLUMNS, MOST_ROWS, linear, takes

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no native library: {missing()}")


def _operands(num_rows: int, dim: int, num_columns: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(num_rows, dim, generator=draw), torch.randn(num_columns, dim, generator=draw)


def _close(found: Tensor, x: Tensor, weights: Tensor) -> None:
    truth = F.linear(x.double(), weights.double())
    size = truth.abs().max().item()
    torch.testing.assert_close(found.double(), truth, rtol=0, atol=3e-6 * (1 + size))


@given(
    num_rows=st.one_of(st.integers(1, 20), st.integers(21, 600)),
    dim=st.integers(1, 70),
    num_columns=st.integers(1, 90),
    seed=st.integers(0, 99),
)
def test_it_is_the_product(num_rows: int, dim: int, num_columns: int, seed: int) -> None:
    x, weights = _operands(num_rows, dim, num_columns, seed)
    _close(linear(x, weights), x, weights)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
@pytest.mark.parametrize("num_columns", [4096, 5003])
def test_rows_and_threads_change_nothing(num_columns: int, num_threads: int) -> None:
    """Bit for bit: a request's logits are the same alone and in company."""
    x, weights = _operands(17, 192, num_columns)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(num_threads)
        together = linear(x, weights)
        alone = torch.cat([linear(row[None], weights) for row in x])
    finally:
        torch.set_num_threads(before)
    _close(together, x, weights)
    assert torch.equal(together, alone)
    assert torch.equal(together, linear(x, weights))


def test_what_it_leaves_to_torch() -> None:
    x, weights = _operands(2, 8, FEWEST_COLUMNS)
    assert takes(x, weights)
    assert not takes(x.double(), weights.double())
    assert not takes(x.bfloat16(), weights.bfloat16())
    assert not takes(x, weights[1:])
    assert not takes(x[:0], weights)
    assert not takes(x.mT.contiguous().mT, weights)
    assert not takes(x[None], weights)
    assert not takes(x, weights.clone().requires_grad_())
    assert not takes(torch.zeros(MOST_ROWS + 1, 8), weights)
