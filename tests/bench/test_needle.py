"""Needles: a fact, a question, and who found it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.bench.needle import WORDS, Needle, check, needle
from deepdraft.errors import UsageError

DOG = Needle(word="Dog", depth_frac=0.5)


@pytest.mark.parametrize(
    ("answer", "is_found"),
    [
        ("Dog.", True),
        ("dog", True),
        ('The secret word is "DOG".', True),
        ("**Dog**", True),
        ("\n\nDog\n", True),
        ("Dogs", False),
        ("hotdog", False),
        ("dog_house", False),
        ("Cat.", False),
        ("", False),
        ("<think>Hidden somewhere... it said Dog.</think>\n\nDog.", True),
        ("<think>It could be Dog.</think>Cat.", False),
        ("it could be Dog, or Cat</think>Dog", True),
        ("The user asks for the secret word. It is Dog.", True),
        ("<think>Where was it? It said the secret word is Dog.", True),
        ("<thinking>Dog?</thinking>I can't find it.", False),
    ],
)
def test_the_word_must_be_in_the_answer_whole(answer: str, is_found: bool) -> None:
    assert check(answer, DOG) is is_found


@given(st.integers(), st.floats(0, 1))
def test_a_needle_follows_from_its_seed(seed: int, depth_frac: float) -> None:
    one = needle(seed, depth_frac)
    assert one == needle(seed, depth_frac)
    assert one.word in WORDS
    assert one.word in one.fact
    assert check(one.fact, one)
    assert not check(one.question, one)
    assert "?" in one.question


def test_needles_differ() -> None:
    assert len({needle(seed, 0.5).word for seed in range(100)}) > 20


@pytest.mark.parametrize("depth_frac", [-0.1, 1.01, float("nan")])
def test_a_depth_is_a_fraction(depth_frac: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        needle(1, depth_frac)
