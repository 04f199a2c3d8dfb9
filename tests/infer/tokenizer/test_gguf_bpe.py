from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from gguf_writing import VOCABULARY, Vocabulary, write_gguf
from tokenizers import Regex, models, pre_tokenizers, trainers

from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.errors import UnsupportedModel
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

TEXTS = [
    "",
    "The capital of France is Paris.",
    "  leading,  double   and trailing  ",
    "tabs\t\tand\n\n\nnewlines \n \r\n mixed\r",
    "    def f(x):\n        return x  # comment\n\n\n\nclass A:\n\tpass\n",
    "1234567890 3.14e-10 ½ ² Ⅷ ٣ 2024-01-01",
    "don't I'LL they'Re ''''s 's 'ſ",
    "日本語テキスト 한국어 العربية हिन्दी ไทย",
    "👨‍👩‍👧‍👦 🏳️‍🌈 e\u0301 é 😀😀😀",
    "a\u00a0b\u2003c\u3000d\u200be\x85f\x1cg\ufeff",
    "<|endoftext|><|im_start|>user\nhi<|im_end|>\n <|im_start|> x<repo_name>",
    "<|im_start|<|im_end|>|> <|not_special|>",
    "…—–„“ !?!? ((([[[{{{ ==>> $$ ^^ ``` ~~~",
    "x" * 300 + " " * 300 + "\n" * 50,
]
CHARACTERS = "'sdDſKabcXYZ 0129  \n\n\t\r.,;:!?-_()[]<>|\\éßЩ中日語한😀👩\u200d🚀½²Ⅷ٣\u0301\u00a0\u2028\u3000\x85\x1c"


def mixtures(count: int, seed: int) -> list[str]:
    """Characters of many kinds in an order that no text has."""
    chosen = random.Random(seed)
    return ["".join(chosen.choices(CHARACTERS, k=chosen.randint(1, 30))) for _ in range(count)]


def anything(count: int, seed: int) -> list[str]:
    """Characters from the whole of Unicode."""
    chosen = random.Random(seed)
    blocks = [(0x1, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
    return ["".join(chr(chosen.randint(*chosen.choice(blocks))) for _ in range(12)) for _ in range(count)]


def test_smollm2_encodes_as_llama_cpp_does(
    smollm2: Tokenizer, smollm2_of_llama_cpp: Callable[..., list[int]]
) -> None:
    texts = [*TEXTS, Path(json.__file__).read_text(), *mixtures(150, seed=1), *anything(100, seed=2)]
    ours = {text: smollm2.encode(text, add_special=False) for text in texts}
    assert ours == {text: smollm2_of_llama_cpp(text) for text in texts}


# As a string in each form's training data would be cut; written out here once more, not taken from the code.
WORDS = {
    "gpt-2": [r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"],
    "llama-bpe": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
    "qwen2": [
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    ],
}


def trained(pre: str) -> Vocabulary:
    """A small vocabulary with merges that only this way of cutting would use."""
    backend = tokenizers.Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in WORDS[pre]]
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, letters])
    corpus = [Path(json.__file__).read_text(), *TEXTS * 20, *mixtures(200, seed=3)]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=900, initial_alphabet=alphabet, show_progress=False)
    backend.train_from_iterator(corpus, trainer)
    model = json.loads(backend.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].__getitem__)
    special = ["<|begin|>", "<|end|>", "<tool call>"]
    merges = [" ".join(pair) for pair in model["merges"]]
    return Vocabulary([*tokens, *special], [1] * len(tokens) + [3, 3, 4], merges, pre)


@pytest.mark.parametrize("pre", WORDS)
def test_other_ways_of_cutting_encode_as_llama_cpp_does(
    pre: str, tmp_path: Path, llama_cpp: Callable[..., Any]
) -> None:
    vocabulary = trained(pre)
    num_tokens = len(vocabulary.tokens)
    stated = {"tokenizer.ggml.bos_token_id": num_tokens - 3, "tokenizer.ggml.eos_token_id": num_tokens - 2}
    path = write_gguf(tmp_path / "tiny.gguf", vocabulary=vocabulary, stated=stated)
    tokenizer = open_checkpoint(path).tokenizer()
    special = ["<|begin|>a<|end|>", "<tool call>x <tool call> y<|begin|>"]
    texts = [*TEXTS, *special, *mixtures(100, seed=4), *anything(50, seed=5)]
    with llama_cpp(path) as tokenize:
        for add_special in (False, True):
            ours = {text: tokenizer.encode(text, add_special=add_special) for text in texts}
            assert ours == {text: tokenize(text, add_special=add_special) for text in texts}


def test_smollm2_pieces(smollm2: Tokenizer) -> None:
    # As recorded from llama.cpp's /tokenize: holds where that engine is not installed.
    token_ids = [19556, 216, 905, 216, 33, 34, 35, 1116, 1, 4093, 40303, 218]
    assert smollm2.encode("Hello  world 123\n\n<|im_start|>user 😀", add_special=False) == token_ids
    assert smollm2.decode(token_ids, skip_special=False) == "Hello  world 123\n\n<|im_start|>user 😀"
    assert smollm2.decode(token_ids, skip_special=True) == "Hello  world 123\n\nuser 😀"


def test_smollm2_says_of_itself(smollm2: Tokenizer) -> None:
    assert (smollm2.vocab_size, smollm2.bos_token_id, smollm2.eos_token_ids) == (49_152, 1, (2,))
    assert smollm2.has_chat_template
    assert smollm2.encode("hi", add_special=True) == smollm2.encode("hi", add_special=False)


@pytest.mark.parametrize(
    ("stated", "field", "words"),
    [
        ({"tokenizer.ggml.model": "llama"}, "tokenizer.ggml.model", "is 'llama'"),
        ({"tokenizer.ggml.model": None}, "tokenizer.ggml.model", "is missing"),
        ({"tokenizer.ggml.pre": "tekken"}, "tokenizer.ggml.pre", "gpt-2, llama-bpe"),
        ({"tokenizer.ggml.pre": None}, "tokenizer.ggml.pre", "is missing"),
        ({"tokenizer.ggml.tokens": None}, "tokenizer.ggml.tokens", "is missing"),
        ({"tokenizer.ggml.merges": None}, "tokenizer.ggml.merges", "is missing"),
        ({"tokenizer.ggml.merges": ["a zzz"]}, "tokenizer.ggml.merges", "zzz"),
    ],
)
def test_refused_by_key(stated: dict[str, Any], field: str, words: str, tmp_path: Path) -> None:
    checkpoint = open_checkpoint(
        write_gguf(tmp_path / "tiny.gguf", stated={"tokenizer.ggml.merges": ["a b"]} | stated)
    )
    with pytest.raises(UnsupportedModel, match=words) as refused:
        checkpoint.tokenizer()
    assert refused.value.field == field


def test_bos_where_the_file_says_so(tmp_path: Path) -> None:
    vocabulary = Vocabulary([*VOCABULARY.tokens, "<s>"], [*VOCABULARY.token_types, 3], VOCABULARY.merges)
    path = tmp_path / "tiny.gguf"
    stated = {"tokenizer.ggml.bos_token_id": 257, "tokenizer.ggml.add_bos_token": True}
    tokenizer = open_checkpoint(write_gguf(path, vocabulary=vocabulary, stated=stated)).tokenizer()
    assert tokenizer.encode("ab", add_special=True) == [257, 256]
    assert tokenizer.encode("ab", add_special=False) == [256]


def test_several_chat_templates(tmp_path: Path) -> None:
    stated = {
        "tokenizer.chat_template": "plain",
        "tokenizer.chat_template.tool_use": "with tools",
    }
    tokenizer = open_checkpoint(write_gguf(tmp_path / "t.gguf", stated=stated)).tokenizer()
    assert tokenizer.chat([], add_generation_prompt=True) == "plain"
    assert tokenizer.chat([], add_generation_prompt=True, tools=[{"type": "function"}]) == "with tools"
