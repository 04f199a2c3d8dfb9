from __future__ import annotations

import pytest
import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors

from deepdraft.infer.errors import InvalidRequest
from deepdraft.infer.tokenizer.token_bytes import byte_level_bytes
from deepdraft.infer.tokenizer.tokenizer import Tokenizer


def backend(*, adds_bos: bool = False) -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    built = tokenizers.Tokenizer(models.BPE(vocab={letter: rank for rank, letter in enumerate(alphabet)}, merges=[]))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    built.decoder = decoders.ByteLevel()
    built.add_special_tokens([AddedToken("<s>", normalized=False)])  # 256
    built.add_tokens([AddedToken("<tool call>", normalized=False)])  # 257
    if adds_bos:
        built.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    return built


@pytest.mark.parametrize(
    ("in_post_processor", "stated", "has_bos"),
    [(False, None, False), (True, None, True), (False, True, True), (True, False, False), (True, True, True)],
)
def test_bos_where_the_files_say_so(in_post_processor: bool, stated: bool | None, has_bos: bool) -> None:
    tokenizer = Tokenizer(backend(adds_bos=in_post_processor), bos_token_id=256, adds_bos=stated)
    assert (tokenizer.encode("a", add_special=True)[0] == 256) == has_bos
    assert len(tokenizer.encode("a", add_special=False)) == 1


def test_a_model_without_bos_gets_none() -> None:
    tokenizer = Tokenizer(backend(), adds_bos=True)
    assert len(tokenizer.encode("a", add_special=True)) == 1


def test_limits_left_from_training_do_not_cut_prompts() -> None:
    limited = backend()
    limited.enable_truncation(4)
    limited.enable_padding(length=8)
    assert len(Tokenizer(limited).encode("abcdefghijkl", add_special=True)) == 12
    assert len(Tokenizer(limited).encode("a", add_special=True)) == 1


def test_special_tokens_are_skipped_and_added_ones_are_not() -> None:
    tokenizer = Tokenizer(backend())
    token_ids = tokenizer.encode("<s>a<tool call>", add_special=False)
    assert token_ids[0] == 256 and token_ids[-1] == 257
    assert tokenizer.decode(token_ids, skip_special=True) == "a<tool call>"
    assert tokenizer.decode(token_ids, skip_special=False) == "<s>a<tool call>"
    assert (tokenizer.is_special(256), tokenizer.is_special(257), tokenizer.vocab_size) == (True, False, 258)


def test_one_token_alone(smollm2: Tokenizer) -> None:
    token_ids = smollm2.encode("😀", add_special=False)
    assert b"".join(map(smollm2.token_bytes, token_ids)).decode() == "😀"
    assert smollm2.token_text(token_ids[0]) == "\ufffd"
    assert smollm2.token_text(1) == "<|im_start|>"
    assert smollm2.token_text(smollm2.encode(" world", add_special=False)[0]) == " world"
    assert smollm2.token_bytes(10**6) == b""


def test_every_byte_has_a_character_of_its_own() -> None:
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    assert sorted(byte_level_bytes(letter) for letter in alphabet) == [bytes([byte]) for byte in range(256)]
    # A token with another character stands for itself, as the library's decoder has it.
    assert byte_level_bytes("<tool call>Ġ") == "<tool call>Ġ".encode()


def test_eos_ids_are_joined_without_repeats() -> None:
    assert Tokenizer(backend(), eos_token_ids=[5, 3, 5]).eos_token_ids == (5, 3)


def test_a_model_without_chat_template() -> None:
    tokenizer = Tokenizer(backend())
    assert not tokenizer.has_chat_template
    with pytest.raises(InvalidRequest, match="no chat template"):
        tokenizer.chat([{"role": "user", "content": "hi"}], add_generation_prompt=True)


def test_named_templates_without_a_default() -> None:
    tokenizer = Tokenizer(backend(), chat_templates={"rag": "x"})
    with pytest.raises(InvalidRequest, match="only rag"):
        tokenizer.chat([], add_generation_prompt=True)
    assert (
        Tokenizer(backend(), chat_templates={"tool_use": "x"}).chat([], add_generation_prompt=True, tools=[{}]) == "x"
    )


def test_smollm2_chat(smollm2: Tokenizer) -> None:
    text = smollm2.chat([{"role": "user", "content": "hi"}], add_generation_prompt=True)
    assert text == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert smollm2.encode(text, add_special=False)[0] == 1


def test_a_sentencepiece_token_alone() -> None:
    vocabulary = {"▁the": 0, "<0xE6>": 1, "é": 2}
    tokenizer = Tokenizer(tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[])))
    assert [tokenizer.token_bytes(token_id) for token_id in range(4)] == [b" the", b"\xe6", "é".encode(), b""]
    assert tokenizer.token_text(1) == "\ufffd"


def test_half_a_surrogate_pair_is_a_refused_request(smollm2: Tokenizer) -> None:
    with pytest.raises(InvalidRequest, match="surrogate"):
        smollm2.encode("a \ud83d b", add_special=True)
