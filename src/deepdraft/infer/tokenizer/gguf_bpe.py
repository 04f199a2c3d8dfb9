"""A tokenizer from GGUF metadata: byte-level BPE (`tokenizer.ggml.model` gpt2), as llama.cpp reads it.

Tokens come out as llama.cpp's own, which takes text as it is: no Unicode normalisation, also where the model's
tokenizer.json had one. Other vocabularies (SentencePiece, WordPiece, Unigram) are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from deepdraft.infer.errors import UnsupportedModel
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

# tokenizer.ggml.token_type
_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4

_GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True)
class _Words:
    """How text is cut before merging; every pattern cuts what the one before it left."""

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    """A word that is a token as it stands is not built up from merges."""
    adds_bos: bool = False
    """Where the file doesn't say."""


_LLAMA3 = _Words((_CL100K_WORDS.format(digits=r"\p{N}{1,3}"),), ignores_merges=True, adds_bos=True)
# tokenizer.ggml.pre
_WORDS = {
    "gpt-2": _Words((_GPT2_WORDS,)),
    "smollm": _Words((r"\p{N}", _GPT2_WORDS)),
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "qwen2": _Words((_CL100K_WORDS.format(digits=r"\p{N}"),)),
}


def gguf_tokenizer(metadata: Mapping[str, Any], eos_token_ids: Sequence[int]) -> Tokenizer:
    """The tokenizer of a GGUF file. Raises UnsupportedModel, naming the key, for a vocabulary that it can't read."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind != "gpt2":
        raise UnsupportedModel("tokenizer.ggml.model", kind, reason="supported is gpt2 (byte-level BPE)")
    pre = metadata.get("tokenizer.ggml.pre")
    words = _WORDS.get(pre) if isinstance(pre, str) else None
    if words is None:
        raise UnsupportedModel("tokenizer.ggml.pre", pre, reason=f"supported are {', '.join(sorted(_WORDS))}")
    tokens, merges = _strings(metadata, "tokenizer.ggml.tokens"), _strings(metadata, "tokenizer.ggml.merges")
    backend = _backend(tokens, merges, words)
    token_types = metadata.get("tokenizer.ggml.token_type")
    _add_special_tokens(backend, tokens, token_types if isinstance(token_types, list) else [])
    return Tokenizer(
        backend,
        bos_token_id=metadata.get("tokenizer.ggml.bos_token_id"),
        eos_token_ids=eos_token_ids,
        adds_bos=bool(metadata.get("tokenizer.ggml.add_bos_token", words.adds_bos)),
        chat_templates=_chat_templates(metadata),
        special_tokens=_special_tokens(metadata, tokens),
    )


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    value = metadata.get(key)
    if value is None:
        raise UnsupportedModel(key, reason="a byte-level BPE vocabulary needs it")
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise UnsupportedModel(key, type(value).__name__, reason="it must be a list of strings")
    return value


def _backend(tokens: list[str], merges: list[str], words: _Words) -> tokenizers.Tokenizer:
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    try:
        model = models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=words.ignores_merges)
    except Exception as error:  # the library raises no narrower class
        raise UnsupportedModel("tokenizer.ggml.merges", f"{len(pairs)} merges", reason=str(error)) from error
    backend = tokenizers.Tokenizer(model)
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in words.patterns]
    letters = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.pre_tokenizer = pre_tokenizers.Sequence([*splits, letters])
    backend.decoder = decoders.ByteLevel()
    return backend


def _add_special_tokens(backend: tokenizers.Tokenizer, tokens: list[str], token_types: Sequence[int]) -> None:
    kinds = list(zip(tokens, token_types, strict=False))
    special = [token for token, kind in kinds if kind in (_UNKNOWN, _CONTROL)]
    plain = [token for token, kind in kinds if kind == _USER_DEFINED]
    backend.add_special_tokens([AddedToken(token, normalized=False) for token in special])
    backend.add_tokens([AddedToken(token, normalized=False) for token in plain])


def _special_tokens(metadata: Mapping[str, Any], tokens: list[str]) -> dict[str, str]:
    keys = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {name: metadata.get(f"tokenizer.ggml.{key}_token_id", -1) for name, key in keys.items()}
    return {name: tokens[token_id] for name, token_id in ids.items() if token_id in range(len(tokens))}


def _chat_templates(metadata: Mapping[str, Any]) -> dict[str, str]:
    key = "tokenizer.chat_template"
    texts = {name: text for name, text in metadata.items() if name.startswith(key) and isinstance(text, str)}
    return {name.removeprefix(key).removeprefix(".") or "default": text for name, text in texts.items()}
