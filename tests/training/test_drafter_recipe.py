"""The shipped drafter's recipe: its shape, and that held-out text stays out of training."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from training.drafter.measure import line_of, table
from training.drafter.recipe import WORDS, encoded, held_out_documents, write_training_text
from training.embedded.corpus import Document, Split

from deepdraft.cli.train_drafter_flags import add_training_flags
from deepdraft.infer.drafter_training.acceptance import Acceptance
from deepdraft.infer.drafter_training.defaults import drafter_shape
from deepdraft.infer.drafter_training.evaluation import EvaluatedPoint
from deepdraft.infer.drafter_training.export import drafter_config
from deepdraft.infer.drafter_training.target import EMBEDDED, Target, load_target

SHIPPED = Path(__file__).parents[2] / "src" / "deepdraft" / "infer" / "embedded_drafter"


@pytest.fixture(scope="module")
def target() -> Target:
    return load_target(EMBEDDED)


def test_the_recipe_makes_the_shipped_drafters_shape(target: Target) -> None:
    parser = argparse.ArgumentParser()
    add_training_flags(parser)
    asked = parser.parse_args(["embedded", "--out", "x", *WORDS])
    shape = drafter_shape(
        target,
        target_layers=asked.target_layers,
        num_layers=asked.num_layers,
        block_size=asked.block_size,
        draft_window=asked.draft_window,
    )
    assert drafter_config(shape) == json.loads((SHIPPED / "config.json").read_text())


def test_documents_are_encoded_as_the_target_has_met_them(target: Target) -> None:
    (token_ids,) = encoded([Document("a.py", "import os\n", "code")], target.tokenizer)
    assert target.tokenizer.decode(token_ids, skip_special=False) == "<|begin|>import os\n<|end|>"
    assert token_ids[0] == 0 and token_ids[-1] == 1


def test_nothing_held_out_is_learned(target: Target, tmp_path: Path) -> None:
    split = Split(
        (Document("a.py", "x = 1\n", "code"),),
        (Document("b.py", "held = 2\n", "code"), Document("c", "Held out prose.\n", "prose")),
    )
    write_training_text(split, tmp_path / "text")
    learned = [file.read_text() for file in (tmp_path / "text").iterdir()]
    assert learned == ["<|begin|>x = 1\n<|end|>"]
    assert [target.tokenizer.encode(text, add_special=True) for text in learned] == encoded(
        split.training, target.tokenizer
    )
    kept = held_out_documents(split, "prose", target.tokenizer)
    assert [target.tokenizer.decode(one, skip_special=True) for one in kept] == ["Held out prose.\n"]


def test_the_table_has_a_row_each_text_and_context() -> None:
    lines = [
        line_of("code", EvaluatedPoint(1024, budget, 2, 500, 0.0, Acceptance((1, 2, 0), 7))) for budget in (0, 8, 16)
    ]
    assert lines[0]["acceptance_len"] == 2.0
    assert table(lines).splitlines()[2] == "| code | 1024 | 2.00 | 2.00 | 2.00 |  |  |"
