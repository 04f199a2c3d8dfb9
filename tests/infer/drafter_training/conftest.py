"""A tiny target, text for it, samples of what it writes, and drafters small enough to train in a second."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from deepdraft.infer.drafter_training.blocks import blocks_at, drawn_anchors
from deepdraft.infer.drafter_training.features import FeatureReader
from deepdraft.infer.drafter_training.prompts import Prompts
from deepdraft.infer.drafter_training.sample import Sample
from deepdraft.infer.drafter_training.shape import DrafterShape, TrainingRecipe
from deepdraft.infer.drafter_training.target import Target
from deepdraft.infer.drafter_training.training import Training
from deepdraft.infer.drafter_training.written import answers
from deepdraft.infer.models.decoder import Decoder

SHAPE = DrafterShape(
    hidden_size=32,
    vocab_size=264,
    mask_token_id=260,
    target_layers=(0, 1),
    num_target_layers=2,
    num_layers=2,
    intermediate_size=48,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    block_size=4,
    draft_window=16,
    max_positions=512,
)
RECIPE = TrainingRecipe(
    num_steps=40, num_sequences=4, num_anchors=8, muon_lr=0.02, adamw_lr=0.02, matmul_dtype="float32"
)


@pytest.fixture(scope="session")
def shape() -> DrafterShape:
    return SHAPE


@pytest.fixture(scope="session")
def recipe() -> TrainingRecipe:
    return RECIPE


@pytest.fixture(scope="session")
def target(tiny_llama: Any) -> Target:
    assert isinstance(tiny_llama.model, Decoder)
    return Target("tiny", tiny_llama.model, tiny_llama.tokenizer, 512)


@pytest.fixture(scope="session")
def documents() -> list[list[int]]:
    """Bytes of few kinds, so that there is something to learn."""
    draw = random.Random(3)
    return [[draw.choice(b"abcdefgh") for _ in range(length)] for length in (150, 90, 200)]


@pytest.fixture(scope="session")
def samples(target: Target, documents: list[list[int]]) -> list[Sample]:
    """What the target writes after twelve prompts."""
    prompts = Prompts(documents, seed=1, max_short_len=80)
    asked = [prompts.short(number, continuation_len=0) for number in range(12)]
    reader = FeatureReader(target.model, SHAPE.target_layers, 128)
    written = answers(target.model, target.tokenizer, asked, max_tokens=40, temperature=lambda _: 0.0)
    found = sorted(written, key=lambda one: one.number)
    return [reader.sample(one.prompt, one.output, 80) for one in found]  # whole prompts


@pytest.fixture(scope="session")
def make_training(target: Target) -> Callable[..., Training]:
    """A training in float32; further values replace the recipe's."""

    def make(**changes: Any) -> Training:
        return Training(
            SHAPE,
            replace(RECIPE, **changes),
            embedding=target.embedding,
            output=target.output,
            final_norm=target.final_norm,
        )

    return make


@pytest.fixture(scope="session")
def trained_with_losses(
    make_training: Callable[..., Training], samples: Sequence[Sample]
) -> tuple[Training, list[float]]:
    """A training that came to its end, and the loss of each step."""
    training = make_training()
    return training, [training.step(samples) for _ in range(training.recipe.num_steps)]


@pytest.fixture(scope="session")
def trained(trained_with_losses: tuple[Training, list[float]]) -> Training:
    """Trained well enough to accept some drafts."""
    return trained_with_losses[0]


@pytest.fixture
def blocks(samples: Sequence[Sample]) -> Any:
    """Three blocks in each of three samples."""
    chosen = samples[:3]
    return blocks_at(chosen, drawn_anchors(chosen, 3, torch.Generator().manual_seed(5)), SHAPE)


@pytest.fixture
def text_files(documents: list[list[int]], tmp_path: Path) -> list[Path]:
    """The documents as files."""
    files = [tmp_path / f"{number}.txt" for number in range(len(documents))]
    for file, document in zip(files, documents, strict=True):
        file.write_bytes(bytes(document))
    return files
