"""The schedule: which stage a step belongs to, and the learning rate's rise and fall."""

from __future__ import annotations

import pytest
from training.embedded.recipe import Recipe, rope_parameters, yarn_softmax_scale

RECIPE = Recipe(total_tokens=1_000 * 4096)


def test_stages_follow_each_other_and_start_at_their_first_step() -> None:
    indices = [RECIPE.stage_index(step) for step in range(RECIPE.num_steps())]
    assert indices == sorted(indices)
    assert set(indices) == {0, 1, 2}
    for stage_index in range(3):
        assert indices.index(stage_index) == RECIPE.first_step(stage_index)


def test_every_stage_fills_its_batches() -> None:
    for stage in Recipe().stages:
        assert Recipe().batch_tokens % stage.sequence_len == 0


def test_learning_rate_rises_to_the_peak_and_falls_to_zero() -> None:
    factors = [RECIPE.lr_factor(step) for step in range(RECIPE.num_steps())]
    peak = factors.index(max(factors))
    assert factors[peak] == pytest.approx(1.0)
    assert factors[: peak + 1] == sorted(factors[: peak + 1])
    assert factors[peak:] == sorted(factors[peak:], reverse=True)
    assert 0 < factors[-1] < 0.01


def test_only_the_last_stage_has_yarn_and_its_softmax_scale_is_transformers_own() -> None:
    assert [stage.is_yarn for stage in Recipe().stages] == [False, False, True]
    modeling = pytest.importorskip("transformers.models.deepseek_v3.modeling_deepseek_v3", reason="no transformers")
    assert yarn_softmax_scale() == pytest.approx(modeling.yarn_apply_mscale(rope_parameters(is_yarn=True), 48**-0.5))
