"""What is learned, by which settings; and what is kept for measurement. Everything that decides the weights."""

from __future__ import annotations

from collections.abc import Iterable

from deepdraft.infer.drafter_training.defaults import drafter_shape
from deepdraft.infer.drafter_training.evaluation import EvaluationSettings
from deepdraft.infer.drafter_training.job_settings import JobSettings
from deepdraft.infer.drafter_training.shape import TrainingRecipe
from deepdraft.infer.drafter_training.target import Target
from deepdraft.infer.tokenizer.tokenizer import Tokenizer
from training.embedded.corpus import Document, Split, chats
from training.embedded.recipe import BEGIN, END

SEED = 20261129
NUM_ANSWERS = 3124
NUM_LONG_TEXTS = 5
NUM_STEPS = 7500

EVALUATIONS = (
    ("code", "code", EvaluationSettings(context_lens=(1024,), num_prompts=32)),
    ("prose", "prose", EvaluationSettings(context_lens=(1024,), num_prompts=32)),
    ("code, first 64 tokens", "code", EvaluationSettings(context_lens=(1024,), num_prompts=32, output_len=71)),
    ("code, sampled", "code", EvaluationSettings(context_lens=(1024,), num_prompts=24, temperature=0.7)),
    ("code", "code", EvaluationSettings(context_lens=(4096, 16_384), num_prompts=8)),
)
"""A name, the kind of held-out text, and how it is evaluated. Long prompts take long to compute, so there are fewer.
Answers repeat themselves the more the longer they are: their beginnings are the harder part."""


def job_settings(target: Target) -> JobSettings:
    """The shipped drafter's: three layers of the target's width, all target layers but the first tapped."""
    return JobSettings(
        shape=drafter_shape(target, target_layers=(1, 2, 3, 4, 5), num_layers=3, block_size=8, draft_window=512),
        recipe=TrainingRecipe(seed=SEED, num_steps=NUM_STEPS),
        num_answers=NUM_ANSWERS,
        num_long_texts=NUM_LONG_TEXTS,
    )


def training_documents(split: Split, tokenizer: Tokenizer) -> list[list[int]]:
    """What the target itself was trained on: modules, topics and chats, none of them held out."""
    return encoded((*split.training, *chats(split.training)), tokenizer)


def held_out_documents(split: Split, kind: str, tokenizer: Tokenizer) -> list[list[int]]:
    """Documents that neither target nor drafter has learned: kind code or prose."""
    return encoded((document for document in split.held_out if document.kind == kind), tokenizer)


def encoded(documents: Iterable[Document], tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of each document as the target has met it, begin and end token around the text."""
    return [tokenizer.encode(f"{BEGIN}{document.text}{END}", add_special=False) for document in documents]
