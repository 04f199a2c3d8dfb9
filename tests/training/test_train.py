"""A resumed run takes the same steps; the router's bias follows the load; the loss falls."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from training.embedded.model import routers
from training.embedded.recipe import Recipe, Stage
from training.embedded.sequences import Sequences
from training.embedded.train import CHECKPOINT, Training

TINY: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
}
RECIPE = Recipe(
    total_tokens=12 * 64,
    batch_tokens=64,
    stages=(Stage(16, 0.5), Stage(32, 0.8), Stage(64, 1.0, is_yarn=True)),
    matmul_dtype="float32",
)


@pytest.fixture(scope="module")
def sequences() -> Sequences:
    """A thousand tokens with a pattern to learn."""
    draw = torch.Generator().manual_seed(0)
    return Sequences([(torch.arange(100) * step) % 64 for step in torch.randint(1, 5, (10,), generator=draw)], 0)


def test_resumed_equals_uninterrupted(sequences: Sequences, tmp_path: Path) -> None:
    whole = Training(RECIPE, sequences, TINY)
    losses = [whole.step() for _ in range(12)]
    for stop in (3, 7, 11):
        first = Training(RECIPE, sequences, TINY)
        for _ in range(stop):
            first.step()
        first.save(tmp_path / CHECKPOINT)
        second = Training(RECIPE, sequences, TINY)
        second.load(tmp_path / CHECKPOINT)
        assert [second.step() for _ in range(12 - stop)] == losses[stop:]
        for name, value in whole.model.state_dict().items():
            assert torch.equal(value, second.model.state_dict()[name]), name
    assert [file.name for file in tmp_path.iterdir()] == [CHECKPOINT]


def test_another_recipe_is_refused_and_another_length_is_noted(sequences: Sequences, tmp_path: Path) -> None:
    Training(RECIPE, sequences, TINY).save(tmp_path / CHECKPOINT)
    with pytest.raises(ValueError, match="muon_lr"):
        Training(replace(RECIPE, muon_lr=1.0), sequences, TINY).load(tmp_path / CHECKPOINT)
    shorter = Training(replace(RECIPE, total_tokens=6 * 64), sequences, TINY)
    shorter.load(tmp_path / CHECKPOINT)
    assert shorter.history == [{"step": 0, "total_tokens_before": 12 * 64}]


def test_positions_switch_with_the_stage(sequences: Sequences) -> None:
    training = Training(RECIPE, sequences, TINY)
    types = []
    for _ in range(RECIPE.num_steps()):
        training.step()
        types.append(training.model.model.rotary_emb.rope_type)
    assert types == ["default"] * 10 + ["yarn"] * 2


def test_router_bias_moves_against_the_load(sequences: Sequences) -> None:
    training = Training(RECIPE, sequences, TINY)
    (router,) = routers(training.model)
    training.step()
    (load,) = training.loads
    # Two experts a token.
    assert load.sum() == 2 * RECIPE.batch_tokens
    rate = RECIPE.router_bias_rate * RECIPE.lr_factor(0)
    assert torch.allclose(router.e_score_correction_bias, rate * torch.sign(load.mean() - load))
    assert training.imbalance() == pytest.approx((load.max() / load.mean()).item())


def test_loss_falls(sequences: Sequences) -> None:
    training = Training(replace(RECIPE, total_tokens=40 * 64, stages=(Stage(32, 1.0),)), sequences, TINY)
    losses = [training.step() for _ in range(40)]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])
