"""GGUF files of the llama form, written by the `gguf` package: the tests' other opinion on the format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HIDDEN, NUM_LAYERS, NUM_QO_HEADS, NUM_KV_HEADS, HEAD_DIM, MLP = 256, 2, 4, 2, 64, 512


@dataclass(frozen=True)
class Vocabulary:
    """What goes into tokenizer.ggml.*."""

    tokens: list[str]
    token_types: list[int]
    merges: list[str]
    pre: str = "gpt-2"


_LETTERS = [chr(256 + byte) if byte < 33 or 127 <= byte < 161 or byte == 173 else chr(byte) for byte in range(256)]
VOCABULARY = Vocabulary([*_LETTERS, "ab"], [1] * 257, ["a b"])
VOCAB_SIZE = len(VOCABULARY.tokens)


def weights(vocab_size: int = VOCAB_SIZE, *, has_output: bool = False, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights by Hugging Face's names and layouts, float32."""
    random = np.random.default_rng(seed)
    q_rows, kv_rows = NUM_QO_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocab_size, HIDDEN)}
    for layer in range(NUM_LAYERS):
        parts = {
            "input_layernorm": (HIDDEN,),
            "self_attn.q_proj": (q_rows, HIDDEN),
            "self_attn.k_proj": (kv_rows, HIDDEN),
            "self_attn.v_proj": (kv_rows, HIDDEN),
            "self_attn.o_proj": (HIDDEN, q_rows),
            "post_attention_layernorm": (HIDDEN,),
            "mlp.gate_proj": (MLP, HIDDEN),
            "mlp.up_proj": (MLP, HIDDEN),
            "mlp.down_proj": (HIDDEN, MLP),
        }
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in parts.items()}
    shapes["model.norm.weight"] = (HIDDEN,)
    if has_output:
        shapes["lm_head.weight"] = (vocab_size, HIDDEN)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(
    path: Path,
    *,
    vocabulary: Vocabulary = VOCABULARY,
    stated: Mapping[str, Any] | None = None,
    tensors: Mapping[str, np.ndarray] | None = None,
    block_type: str = "F32",
    architecture: str = "llama",
) -> Path:
    """A file as convert_hf_to_gguf.py would write it. `stated` adds keys or replaces them (None: leaves them out)."""
    gguf = pytest.importorskip("gguf", reason="the package gguf, which writes the test files, is not installed")
    writer = gguf.GGUFWriter(path, architecture)
    metadata = {
        "llama.block_count": NUM_LAYERS,
        "llama.context_length": 512,
        "llama.embedding_length": HIDDEN,
        "llama.feed_forward_length": MLP,
        "llama.attention.head_count": NUM_QO_HEADS,
        "llama.attention.head_count_kv": NUM_KV_HEADS,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": HEAD_DIM,
        "llama.rope.freq_base": 10000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": vocabulary.pre,
        "tokenizer.ggml.tokens": vocabulary.tokens,
        "tokenizer.ggml.token_type": vocabulary.token_types,
        "tokenizer.ggml.merges": vocabulary.merges,
        **(stated or {}),
    }
    for key, value in metadata.items():
        _add(writer, key, value)
    kind = gguf.GGMLQuantizationType[block_type]
    held = weights(len(vocabulary.tokens)) if tensors is None else tensors
    for name, array in held.items():
        stored = _stored_name(name)
        rows = _pairs_side_by_side(array) if stored.endswith(("attn_q.weight", "attn_k.weight")) else array
        if kind == gguf.GGMLQuantizationType.F32 or rows.ndim == 1:
            writer.add_tensor(stored, rows)
        else:
            writer.add_tensor(stored, gguf.quantize(rows, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: Any, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif value is not None:
        writer.add_array(key, value)


def _stored_name(name: str) -> str:
    top = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    parts = {
        "input_layernorm": "attn_norm",
        "self_attn.q_proj": "attn_q",
        "self_attn.k_proj": "attn_k",
        "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output",
        "post_attention_layernorm": "ffn_norm",
        "mlp.gate_proj": "ffn_gate",
        "mlp.up_proj": "ffn_up",
        "mlp.down_proj": "ffn_down",
    }
    if not name.startswith("model.layers."):
        return top.get(name, name)
    layer, part = name.removeprefix("model.layers.").removesuffix(".weight").split(".", 1)
    return f"blk.{layer}.{parts[part]}.weight"


def _pairs_side_by_side(rows: np.ndarray) -> np.ndarray:
    """convert_hf_to_gguf.py's permutation, in its own words."""
    num_heads = rows.shape[0] // HEAD_DIM
    split = rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, *rows.shape[1:])
    return split.swapaxes(1, 2).reshape(rows.shape)
