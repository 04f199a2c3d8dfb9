"""Counted rounds are the engine's own, chain and tree."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from deepdraft.infer.drafter_training.acceptance import CHAIN, Acceptance, acceptances
from deepdraft.infer.drafter_training.export import read_drafter, write_drafter
from deepdraft.infer.drafter_training.features import FeatureReader
from deepdraft.infer.drafter_training.prompts import Prompts
from deepdraft.infer.drafter_training.sample import Sample
from deepdraft.infer.drafter_training.target import Target
from deepdraft.infer.drafter_training.training import Training
from deepdraft.infer.drafter_training.written import Written, answers
from deepdraft.infer.drafters.open import open_drafter
from deepdraft.infer.engine import Engine
from deepdraft.infer.request import Request, SamplingParams
from deepdraft.infer.settings import EngineSettings, SpeculationSettings


def test_figures_by_hand() -> None:
    found = Acceptance((0, 3, 1, 0), 3)
    assert found.acceptance_len == 2.0
    assert found.accepted_at_depth == (0.5, 0.25, 0.25)


def test_larger_trees_accept_more_and_a_tree_more_than_a_chain(
    trained: Training, samples: Sequence[Sample], target: Target
) -> None:
    found = acceptances(
        trained.module, samples, embedding=target.embedding, output=target.output, budgets=(CHAIN, 1, 4, 16)
    )
    lens = [found[budget].acceptance_len for budget in (1, 4, 16)]
    assert lens == sorted(lens)
    assert found[16].acceptance_len > found[CHAIN].acceptance_len > 1.2


def test_rounds_cover_the_output(trained: Training, samples: Sequence[Sample], target: Target) -> None:
    """The first round begins at the first output token, each next one behind what the last one committed."""
    (sample,) = samples[:1]
    found = acceptances(trained.module, [sample], embedding=target.embedding, output=target.output)[CHAIN]
    last_start = len(sample.token_ids) - trained.shape.draft_len - sample.num_prompt_tokens
    covered = sum(accepted + 1 for accepted in found.accepted_lens)
    assert covered - found.accepted_lens[-1] - 1 < last_start <= covered


def test_an_output_without_room_for_a_block_has_no_round(trained: Training, target: Target) -> None:
    short = Sample(0, 20, torch.arange(22), torch.zeros(22, 64, dtype=torch.bfloat16))
    found = acceptances(trained.module, [short], embedding=target.embedding, output=target.output)
    assert found[CHAIN].accepted_lens == ()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("budget", [CHAIN, 6])
def test_the_engine_accepts_what_was_counted(
    trained: Training, documents: list[list[int]], target: Target, tmp_path: Path, budget: int, temperature: float
) -> None:
    """Round by round, up to the last one, which the engine's own end of output cuts short."""
    write_drafter(trained.module, tmp_path)
    module = read_drafter(tmp_path)
    drawn = Prompts(documents, seed=8, max_short_len=80)
    prompts = [drawn.short(number, continuation_len=0) for number in range(4)]
    written = answers(target.model, target.tokenizer, prompts, max_tokens=40, temperature=lambda _: temperature)
    reader = FeatureReader(target.model, module.shape.target_layers, 128)
    for one in written:
        counted = acceptances(
            module,
            [reader.sample(one.prompt, one.output, 80)],
            embedding=target.embedding,
            output=target.output,
            budgets=(budget,),
            temperature=temperature,
            seeds=[one.number],
        )[budget]
        accepted = _engine_rounds(target, tmp_path, one, budget)
        assert accepted[: len(counted.accepted_lens)] == list(counted.accepted_lens)


def _engine_rounds(target: Target, drafter_folder: Path, written: Written, budget: int) -> list[int]:
    """With pages of one token, so that the window is exactly the drafter's."""
    drafter = open_drafter(drafter_folder, target.model)
    assert drafter is not None
    if budget == CHAIN:
        speculation = SpeculationSettings(tree_budget=drafter.draft_len, tree_top_k=1)
    else:
        speculation = SpeculationSettings(tree_budget=budget, tree_top_k=8)
    settings = EngineSettings(max_context_len=256, kv_pool_tokens=512, page_size=1)
    engine = Engine(target.model, target.tokenizer, settings, drafter, speculation)
    assert written.temperature is not None
    sampling = SamplingParams(
        max_tokens=len(written.output), temperature=written.temperature, seed=written.number, ignore_eos=True
    )
    engine.submit(Request(request_id="a", prompt_token_ids=written.prompt, sampling=sampling))
    while engine.has_work:
        engine.step()
    return [one.accepted_len for record in engine.steps for one in record.rounds]
