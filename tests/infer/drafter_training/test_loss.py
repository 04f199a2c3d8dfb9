"""The loss of blocks by hand."""

from __future__ import annotations

import math

import pytest
import torch

from deepdraft.infer.drafter_training.blocks import NO_LABEL
from deepdraft.infer.drafter_training.loss import block_loss, depth_weights


def test_weights_fall_by_e_every_gamma_depths() -> None:
    weights = depth_weights(7, 3.0)
    assert weights[0] == 1
    assert weights[3] == pytest.approx(math.exp(-1))
    assert weights[6] == pytest.approx(math.exp(-2))


def test_is_the_weighted_mean_of_the_tokens_losses() -> None:
    logits = torch.randn(2, 3, 5, generator=torch.Generator().manual_seed(1))
    labels = torch.tensor([[0, 1, 2], [4, 3, NO_LABEL]])
    weights = torch.tensor([1.0, 0.5, 0.25])
    nats = -logits.log_softmax(-1)
    expected = (nats[0, 0, 0] + 0.5 * nats[0, 1, 1] + 0.25 * nats[0, 2, 2] + nats[1, 0, 4] + 0.5 * nats[1, 1, 3]) / (
        1 + 0.5 + 0.25 + 1 + 0.5
    )
    torch.testing.assert_close(block_loss(logits, labels, weights), expected)


def test_what_has_no_label_has_no_gradient() -> None:
    logits = torch.zeros(1, 2, 4, requires_grad=True)
    loss = block_loss(logits, torch.tensor([[1, NO_LABEL]]), torch.ones(2))
    (gradient,) = torch.autograd.grad(loss, logits)
    assert gradient[0, 0].abs().sum() > 0
    assert gradient[0, 1].abs().sum() == 0


def test_without_any_label_it_is_zero() -> None:
    assert block_loss(torch.zeros(1, 2, 4), torch.full((1, 2), NO_LABEL), torch.ones(2)) == 0
