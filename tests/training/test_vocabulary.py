"""Any text round trips; roles, indentation and the chat template come out as meant."""

from __future__ import annotations

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from jinja2.exceptions import TemplateError
from training.embedded.recipe import SPECIAL_TOKENS
from training.embedded.vocabulary import train_vocabulary, wrapped
from transformers import PreTrainedTokenizerFast

TEXT = "def f(x):\n    return x\n\n\nclass A:\n    def g(self):\n        return self.x\n" * 8


@pytest.fixture(scope="module")
def vocabulary() -> tokenizers.Tokenizer:
    """A small one, of a small text."""
    return train_vocabulary([TEXT], vocab_size=400)


@pytest.fixture(scope="module")
def tokenizer(vocabulary: tokenizers.Tokenizer) -> PreTrainedTokenizerFast:
    """The same, as transformers has it."""
    return wrapped(vocabulary, max_positions=1024)


@given(text=st.text())
def test_any_text_round_trips(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


@given(text=st.text(alphabet=" \t\r\n\x0b\x0c\u00a0\u2028aé_.1", max_size=30))
def test_any_white_space_round_trips(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_all_bytes_and_all_special_tokens_are_there(vocabulary: tokenizers.Tokenizer) -> None:
    assert [vocabulary.id_to_token(token_id) for token_id in range(len(SPECIAL_TOKENS))] == list(SPECIAL_TOKENS)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    assert len(alphabet) == 256
    assert all(vocabulary.token_to_id(character) is not None for character in alphabet)


def test_a_line_break_and_its_indentation_are_one_token(vocabulary: tokenizers.Tokenizer) -> None:
    pieces = vocabulary.encode("def g(self):\n        return self.x").tokens
    assert "Ċ" + 8 * "Ġ" in pieces


def test_special_tokens_are_one_id_each(tokenizer: PreTrainedTokenizerFast) -> None:
    for token_id, token in enumerate(SPECIAL_TOKENS):
        assert tokenizer.encode(token) == [token_id]


def test_encoding_adds_nothing(tokenizer: PreTrainedTokenizerFast) -> None:
    assert tokenizer.encode("") == []
    assert tokenizer.bos_token_id not in tokenizer.encode("x")


def test_chat_template(tokenizer: PreTrainedTokenizerFast) -> None:
    messages = [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q"},
        {"role": "assistant", "content": "A\n"},
        {"role": "user", "content": "R"},
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "<|begin|><|system|>S<|user|>Q<|assistant|>A\n<|end|><|user|>R<|assistant|>"
    without = tokenizer.apply_chat_template(messages[:2], tokenize=False)
    assert without == "<|begin|><|system|>S<|user|>Q"


def test_chat_template_refuses_an_unknown_role(tokenizer: PreTrainedTokenizerFast) -> None:
    with pytest.raises(TemplateError, match="unknown role tool"):
        tokenizer.apply_chat_template([{"role": "tool", "content": "x"}], tokenize=False)
