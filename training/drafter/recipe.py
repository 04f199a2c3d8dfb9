"""What is learned, by which flags; and what is kept for measurement. Everything that decides the weights."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from deepdraft.infer.drafter_training.evaluation import EvaluationSettings
from deepdraft.infer.tokenizer.tokenizer import Tokenizer
from training.embedded.corpus import Document, Split, chats
from training.embedded.recipe import BEGIN, END

WORDS = (
    *("--seed", "20261129", "--regenerate", "800k", "--long-frac", "0.3"),
    *("--num-layers", "3", "--block-size", "8", "--target-layers", "0,1,2,3,4", "--draft-window", "512"),
    *("--steps", "9500"),
)
"""The shipped drafter's: 3,125 answers and those to 384 long prompts; three layers of the target's width, all target
layers but the first tapped."""

EVALUATIONS = (
    ("code", "code", EvaluationSettings(context_lens=(1024,), num_prompts=32)),
    ("prose", "prose", EvaluationSettings(context_lens=(1024,), num_prompts=32)),
    ("code, first 64 tokens", "code", EvaluationSettings(context_lens=(1024,), num_prompts=32, output_len=71)),
    ("code, sampled", "code", EvaluationSettings(context_lens=(1024,), num_prompts=24, temperature=0.7)),
    ("code", "code", EvaluationSettings(context_lens=(4096, 16_384), num_prompts=8)),
)
"""A name, the kind of held-out text, and how it is evaluated. Long prompts take long to compute, so there are fewer.
Answers repeat themselves the more the longer they are: their beginnings are the harder part."""


def write_training_text(split: Split, folder: Path) -> None:
    """What the target itself was trained on, none of it held out: modules, topics and chats, a file each, begin and
    end token around the text."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, document in enumerate((*split.training, *chats(split.training))):
        (folder / f"{number:05d}.txt").write_text(_stated(document), encoding="utf-8")


def held_out_documents(split: Split, kind: str, tokenizer: Tokenizer) -> list[list[int]]:
    """Documents that neither target nor drafter has learned: kind code or prose."""
    return encoded((document for document in split.held_out if document.kind == kind), tokenizer)


def encoded(documents: Iterable[Document], tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of each document as the target has met it."""
    return [tokenizer.encode(_stated(document), add_special=False) for document in documents]


def _stated(document: Document) -> str:
    return f"{BEGIN}{document.text}{END}"
