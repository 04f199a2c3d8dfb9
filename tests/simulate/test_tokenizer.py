from __future__ import annotations

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from deepdraft.simulate.spec import Confounds
from deepdraft.simulate.text import template_pieces, words
from deepdraft.simulate.tokenizer import VOCAB_LEN, Tokenizer


@given(st.text(max_size=300))
def test_pieces_are_the_text(text: str) -> None:
    tokenizer = Tokenizer()
    pieces = tokenizer.pieces(text)
    assert "".join(pieces) == text
    ids = tokenizer.ids(pieces)
    assert len(ids) == len(pieces)
    assert all(1 <= token_id < VOCAB_LEN for token_id in ids)


def test_a_word_may_cost_several_tokens() -> None:
    pieces = Tokenizer().pieces("An internationalisation, quickly\nnow")
    assert pieces == ["An", " internat", "ionalisa", "tion", ",", " quickly", "\n", "now"]


def test_ids_are_stable() -> None:
    first, second = Tokenizer(), Tokenizer()
    second.encode("something else first")
    assert first.encode("the same text") == second.encode("the same text")


def test_ids_seen_can_be_read_back() -> None:
    tokenizer = Tokenizer()
    text = "The magic word is Dog. What is the magic word?"
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(st.integers(0, 10_000))
def test_output_words_are_one_token_each_and_differ(seed: int) -> None:
    made = list(islice(words(seed, Confounds()), 400))
    assert len(Tokenizer().encode("".join(made))) == 400
    assert len(set(made)) == 400


def test_non_ascii_words_are_one_token_each() -> None:
    made = list(islice(words(1, Confounds(non_ascii=True)), 100))
    assert len(Tokenizer().encode("".join(made))) == 100
    assert not "".join(made).isascii()


def test_retokenised_words_are_three_tokens_each() -> None:
    made = list(islice(words(1, Confounds(retokenise=True)), 50))
    assert len(Tokenizer().encode("".join(made))) == 150


@given(st.integers(0, 300), st.text(max_size=60))
def test_the_template_adds_exactly_its_length(template_len: int, text: str) -> None:
    head, tail = template_pieces(template_len)
    assert len(head) + len(tail) == template_len
    tokenizer = Tokenizer()
    whole = "".join([*head, text, *tail])
    if template_len >= 2:  # below, there is nothing between the text and its neighbours
        assert len(tokenizer.encode(whole)) == template_len + len(tokenizer.encode(text))
