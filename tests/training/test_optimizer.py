"""Newton-Schulz against the SVD, Muon's step against a plain formulation, and the router's bias rule."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from training.embedded.optimizer import Muon, balance, orthogonalized, split_parameters


@pytest.mark.parametrize("shape", [(3, 24, 40), (2, 40, 24), (1, 32, 32)])
def test_singular_values_come_close_to_one(shape: tuple[int, ...]) -> None:
    matrices = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalized(matrices))
    # A square random matrix has singular values near zero, which five iterations cannot lift.
    upper_part = values if shape[1] != shape[2] else values[:, : shape[1] * 3 // 4]
    assert upper_part.min() > 0.5
    assert values.max() < 1.3


def test_directions_are_those_of_the_svd() -> None:
    matrices = torch.randn(4, 16, 48, generator=torch.Generator().manual_seed(1))
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    result = orthogonalized(matrices)
    # In the bases of the singular vectors the result is diagonal: only the values were replaced.
    inner = left.mT @ result @ right.mT
    assert torch.allclose(inner, torch.diag_embed(inner.diagonal(dim1=1, dim2=2)), atol=1e-4)


def test_a_batch_is_its_matrices_one_by_one() -> None:
    matrices = torch.randn(3, 8, 20, generator=torch.Generator().manual_seed(2))
    alone = torch.cat([orthogonalized(matrix[None]) for matrix in matrices])
    assert torch.allclose(orthogonalized(matrices), alone, atol=1e-5)


def test_two_steps_equal_a_plain_formulation() -> None:
    lr, momentum, weight_decay = 0.01, 0.9, 0.1
    draw = torch.Generator().manual_seed(3)
    wide = nn.Parameter(torch.randn(6, 10, generator=draw))
    tall = nn.Parameter(torch.randn(10, 6, generator=draw))
    experts = nn.Parameter(torch.randn(2, 10, 6, generator=draw))
    halved = nn.Parameter(torch.randn(2, 12, 10, generator=draw))
    params = [wide, tall, experts, halved]
    plain = [[matrix.clone() for matrix in _matrices(param.detach(), is_halved=param is halved)] for param in params]
    running = [[torch.zeros_like(matrix) for matrix in matrices] for matrices in plain]
    optimizer = Muon(params, lr=lr, momentum=momentum, weight_decay=weight_decay, halved=[halved])
    for _ in range(2):
        for param, weights, momenta in zip(params, plain, running, strict=True):
            param.grad = torch.randn(param.shape, generator=draw)
            grads = _matrices(param.grad, is_halved=param is halved)
            for weight, grad, average in zip(weights, grads, momenta, strict=True):
                average.mul_(momentum).add_(grad, alpha=1 - momentum)
                direction = orthogonalized((grad * (1 - momentum) + average * momentum)[None])[0]
                weight.sub_(lr * (0.2 * max(weight.shape) ** 0.5 * direction + weight_decay * weight))
        optimizer.step()
    for param, weights in zip(params, plain, strict=True):
        for matrix, weight in zip(_matrices(param.detach(), is_halved=param is halved), weights, strict=True):
            assert torch.allclose(matrix, weight, atol=1e-5)


def test_parameters_go_where_they_belong() -> None:
    model = nn.ModuleDict(
        {
            "embed_tokens": nn.Embedding(8, 4),
            "q_proj": nn.Linear(4, 4, bias=False),
            "norm": nn.RMSNorm(4),
            "gate": nn.Linear(4, 2, bias=False),
        }
    )
    matrices, halved, rest = split_parameters(model)
    assert [tuple(param.shape) for param in matrices] == [(4, 4)]
    assert halved == []
    assert len(rest) == 3


def test_bias_moves_towards_idle_experts_by_the_rate() -> None:
    bias = torch.tensor([0.5, 0.0, -0.5, 0.0])
    balance(bias, torch.tensor([10.0, 0.0, 3.0, 5.0]), rate=0.25)
    # The mean load is 4.5: the first and the last are above it.
    assert bias.tolist() == [0.25, 0.25, -0.25, -0.25]


def test_even_load_moves_nothing() -> None:
    bias = torch.zeros(4)
    balance(bias, torch.full((4,), 7.0), rate=0.1)
    assert bias.tolist() == [0.0] * 4


def _matrices(values: torch.Tensor, *, is_halved: bool) -> list[torch.Tensor]:
    if values.ndim == 2:
        return [values]
    if not is_halved:
        return list(values)
    return [half for matrix in values for half in matrix.chunk(2)]
