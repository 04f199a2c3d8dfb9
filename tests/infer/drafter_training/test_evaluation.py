"""Acceptance at several context lengths, from documents to points."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.acceptance import CHAIN
from deepdraft.infer.drafter_training.evaluation import EvaluationSettings, evaluated
from deepdraft.infer.drafter_training.target import Target
from deepdraft.infer.drafter_training.training import Training

SETTINGS = EvaluationSettings(context_lens=(64, 100), num_prompts=3, output_len=24, budgets=(CHAIN, 8))


def test_a_point_each_context_and_form_of_draft(
    trained: Training, target: Target, documents: list[list[int]]
) -> None:
    told: list[str] = []
    points = evaluated(trained.module, target, documents, SETTINGS, told.append)
    assert [(point.context_len, point.budget) for point in points] == [(64, 0), (64, 8), (100, 0), (100, 8)]
    assert all(point.num_outputs == 3 and point.num_output_tokens <= 72 for point in points)
    assert points[1].acceptance.acceptance_len >= points[0].acceptance.acceptance_len > 1
    assert told[0].startswith(
        f"acceptance after 64 tokens: chain {points[0].acceptance.acceptance_len:.2f}, tree of 8 "
    )


def test_the_seed_decides_the_prompts(trained: Training, target: Target, documents: list[list[int]]) -> None:
    def found(seed: int) -> list[tuple[int, ...]]:
        settings = replace(SETTINGS, seed=seed, context_lens=(64,))
        points = evaluated(trained.module, target, documents, settings, lambda _: None)
        return [point.acceptance.accepted_lens for point in points]

    assert found(1) == found(1)
    assert found(1) != found(2)


@pytest.mark.parametrize(("context_lens", "message"), [((500,), "longer than the target's 512"), ((8,), "too short")])
def test_contexts_that_cant_be_are_refused(
    trained: Training, target: Target, documents: list[list[int]], context_lens: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        evaluated(trained.module, target, documents, replace(SETTINGS, context_lens=context_lens), lambda _: None)


def test_outputs_too_short_for_a_round_give_no_point(
    trained: Training, target: Target, documents: list[list[int]]
) -> None:
    told: list[str] = []
    settings = replace(SETTINGS, context_lens=(64,), output_len=3)
    assert evaluated(trained.module, target, documents, settings, told.append) == []
    assert "no output was long enough for a round" in told[0]
