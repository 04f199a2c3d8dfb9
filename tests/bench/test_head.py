"""Heads: no two prompts begin alike."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.bench.head import HEAD_LEN, HEAD_WORDS, SHORT_STARTERS, STARTERS, distinct_heads


def test_first_words_differ_while_there_are_unused_ones_then_the_first_two() -> None:
    words = HEAD_WORDS[:40]
    heads = list(islice(distinct_heads(words, words, 1), 40 * 40))
    assert all(len({head.split()[0] for head in heads[at : at + 40]}) == 40 for at in range(0, 1_600, 40))
    assert len({tuple(head.split()[:2]) for head in heads}) == 1_600


def test_five_hundred_prompts_have_five_hundred_first_words() -> None:
    heads = list(islice(distinct_heads(HEAD_WORDS, HEAD_WORDS, 7), 500))
    assert len({head.split()[0] for head in heads}) == 500
    assert {len(head.split()) for head in heads} == {HEAD_LEN}


@given(st.integers(), st.integers())
def test_a_seed_decides_the_heads(seed: int, other: int) -> None:
    one, again = (list(islice(distinct_heads(HEAD_WORDS, HEAD_WORDS, seed), 5)) for _ in range(2))
    assert one == again
    if seed != other:
        assert one != list(islice(distinct_heads(HEAD_WORDS, HEAD_WORDS, other), 5))


def test_no_list_of_words_shares_one_with_another_in_any_case() -> None:
    lists = [{word.lower() for word in words} for words in (HEAD_WORDS, STARTERS, SHORT_STARTERS)]
    assert not lists[0] & (lists[1] | lists[2])
    assert not lists[1] & lists[2]
    assert [len(words) for words in (HEAD_WORDS, STARTERS, SHORT_STARTERS)] == [len(words) for words in lists]


def test_heads_need_words() -> None:
    for first, words, num_words in (((), ("a",), 8), (("a",), (), 8), (("a",), ("a",), 1)):
        with pytest.raises(ValueError, match="words to draw from"):
            next(distinct_heads(first, words, 1, num_words))
