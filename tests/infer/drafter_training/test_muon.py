"""Muon's directions and its step."""

from __future__ import annotations

import torch
from torch import nn

from deepdraft.infer.drafter_training.muon import Muon, orthogonalized


def test_singular_values_become_about_one() -> None:
    matrices = torch.randn(3, 12, 20, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalized(matrices))
    assert values.min() > 0.5
    assert values.max() < 1.3


def test_tall_matrices_are_treated_as_wide_ones() -> None:
    matrices = torch.randn(2, 20, 12, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(orthogonalized(matrices), orthogonalized(matrices.mT).mT)


def test_a_step_has_a_size_of_its_own_whatever_the_gradients() -> None:
    """0.2 sqrt(longer side) times the rate, for singular values of one."""
    moved = []
    for scale in (1e-3, 1e3):
        param = nn.Parameter(torch.zeros(8, 8))
        param.grad = torch.eye(8) * scale
        Muon([param], lr=0.1).step()
        moved.append(param.detach().clone())
    torch.testing.assert_close(moved[0], moved[1], atol=1e-3, rtol=1e-2)
    size = torch.linalg.matrix_norm(moved[0], 2)
    assert 0.6 * 0.1 * 0.2 * 8**0.5 < size < 1.3 * 0.1 * 0.2 * 8**0.5


def test_matrices_of_one_shape_move_as_they_would_alone() -> None:
    draw = torch.Generator().manual_seed(4)
    gradients = [
        torch.randn(6, 10, generator=draw),
        torch.randn(6, 10, generator=draw),
        torch.randn(10, 6, generator=draw),
    ]
    together = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for param, gradient in zip(together, gradients, strict=True):
        param.grad = gradient
    Muon(together, lr=0.1).step()
    for param, gradient in zip(together, gradients, strict=True):
        alone = nn.Parameter(torch.zeros_like(gradient))
        alone.grad = gradient
        Muon([alone], lr=0.1).step()
        torch.testing.assert_close(param, alone, atol=1e-6, rtol=1e-4)


def test_weights_decay_and_parameters_without_gradient_stay() -> None:
    moved, still = nn.Parameter(torch.eye(4) * 5), nn.Parameter(torch.ones(4, 4))
    moved.grad = torch.zeros(4, 4)
    Muon([moved, still], lr=0.1, weight_decay=0.5).step()
    torch.testing.assert_close(moved.detach(), torch.eye(4) * 5 * 0.95)
    assert torch.equal(still.detach(), torch.ones(4, 4))
