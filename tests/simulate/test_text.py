from __future__ import annotations

import pytest

from deepdraft.simulate.spec import Confounds
from deepdraft.simulate.text import needle_answer
from deepdraft.simulate.tokenizer import Tokenizer


def answer(prompt: str, **switches: bool) -> str | None:
    pieces = needle_answer(prompt, Confounds(**switches), Tokenizer())
    return None if pieces is None else "".join(pieces)


FILLER = "Ships sail on. " * 500


@pytest.mark.parametrize("noun", ["secret word", "magic word", "secret code", "magic code"])
def test_the_hidden_fact_is_found(noun: str) -> None:
    assert answer(f"{FILLER}The {noun} is Dog. {FILLER}What is the {noun}?") == " Dog."


def test_the_wrong_answer_is_given_when_told_to() -> None:
    prompt = f"The secret word is Dog. {FILLER}What is the secret word?"
    assert answer(prompt, needle_wrong=True) not in (None, " Dog.")


def test_a_lost_fact_is_not_answered() -> None:
    assert answer(f"{FILLER}What is the secret word?") == " unknown."


@pytest.mark.parametrize(
    "prompt",
    ["Tell me a story.", f"The secret word is Dog. {FILLER}", f"What is the secret word? {FILLER}"],
)
def test_without_a_question_at_the_end_nothing_is_answered(prompt: str) -> None:
    assert answer(prompt) is None
