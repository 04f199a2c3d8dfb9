"""GGUF files for tests, small enough to load in a second: an architecture's own keys and tensors, random weights.

Written by the `gguf` package, so that the reader under test meets another hand's bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

HIDDEN, MLP, NUM_QO_HEADS, NUM_KV_HEADS, HEAD_DIM = 256, 512, 4, 2, 64
_LETTERS = [chr(256 + byte) if byte < 33 or 127 <= byte < 161 or byte == 173 else chr(byte) for byte in range(256)]
TOKENS = [*_LETTERS, "ab"]
_QO, _KV = NUM_QO_HEADS * HEAD_DIM, NUM_KV_HEADS * HEAD_DIM
_ATTENTION = {
    "attn_norm": (HIDDEN,),
    "attn_q": (_QO, HIDDEN),
    "attn_k": (_KV, HIDDEN),
    "attn_v": (_KV, HIDDEN),
    "attn_output": (HIDDEN, _QO),
}
_HEAD_NORMS = {"attn_k_norm": (HEAD_DIM,), "attn_q_norm": (HEAD_DIM,)}
_MLP = {"ffn_norm": (HIDDEN,), "ffn_gate": (MLP, HIDDEN), "ffn_up": (MLP, HIDDEN), "ffn_down": (HIDDEN, MLP)}


def llama_gguf(path: Path, *, num_layers: int = 4, **stated: Any) -> Path:
    """Grouped-query attention, every layer full."""
    return write_gguf(path, "llama", [_ATTENTION | _MLP] * num_layers, stated)


def gemma3_gguf(path: Path, *, num_layers: int = 12, window: int = 512, **stated: Any) -> Path:
    """Every sixth layer full, the others with a window."""
    layer = _ATTENTION | _HEAD_NORMS | _MLP | {"post_attention_norm": (HIDDEN,), "post_ffw_norm": (HIDDEN,)}
    return write_gguf(path, "gemma3", [layer] * num_layers, {"attention.sliding_window": window} | stated)


def qwen3next_gguf(path: Path, *, num_layers: int = 8, **stated: Any) -> Path:
    """Every fourth layer full, the others with a state of a gated delta network: 4 value heads and 2 key heads of 32,
    kernel 4; 4 experts, 2 a token."""
    num_experts, inner, dim, num_key, num_value = 4, 64, 32, 2, 4
    experts = {
        "ffn_gate_inp": (num_experts, HIDDEN),
        "ffn_gate_exps": (num_experts, inner, HIDDEN),
        "ffn_up_exps": (num_experts, inner, HIDDEN),
        "ffn_down_exps": (num_experts, HIDDEN, inner),
        "ffn_gate_inp_shexp": (HIDDEN,),
        "ffn_gate_shexp": (inner, HIDDEN),
        "ffn_up_shexp": (inner, HIDDEN),
        "ffn_down_shexp": (HIDDEN, inner),
        "post_attention_norm": (HIDDEN,),
    }
    full = _ATTENTION | _HEAD_NORMS | experts | {"attn_q": (2 * _QO, HIDDEN)}
    key, value = num_key * dim, num_value * dim
    state = experts | {
        "attn_norm": (HIDDEN,),
        "attn_qkv": (2 * key + value, HIDDEN),
        "attn_gate": (value, HIDDEN),
        "ssm_conv1d": (2 * key + value, 4),
        "ssm_dt.bias": (num_value,),
        "ssm_a.": (num_value,),
        "ssm_ba": (2 * num_value, HIDDEN),
        "ssm_norm": (dim,),
        "ssm_out": (HIDDEN, value),
    }
    keys = {
        "expert_count": num_experts,
        "expert_used_count": 2,
        "expert_feed_forward_length": inner,
        "expert_shared_feed_forward_length": inner,
        "ssm.conv_kernel": 4,
        "ssm.inner_size": value,
        "ssm.state_size": dim,
        "ssm.time_step_rank": num_value,
        "ssm.group_count": num_key,
        "full_attention_interval": 4,
    }
    return write_gguf(path, "qwen3next", [state if (i + 1) % 4 else full for i in range(num_layers)], keys | stated)


def deepseek4_gguf(path: Path, *, ratios: tuple[int, ...] = (0, 4, 128, 4), window: int = 128, **stated: Any) -> Path:
    """A layer for each ratio, of heads of 128 with 64 positional numbers, an index of 64, 4 streams and 4 experts."""
    heads, dim, rank, groups, lora, index_heads, index = 4, 128, 64, 2, 64, 2, 64
    num_experts, inner, streams = 4, 64, 4
    mixed, mixes = streams * HIDDEN, (2 + streams) * streams
    plain = {
        "attn_norm": (HIDDEN,),
        "attn_sinks": (heads,),
        "attn_q_a": (rank, HIDDEN),
        "attn_q_a_norm": (rank,),
        "attn_q_b": (heads * dim, rank),
        "attn_kv": (dim, HIDDEN),
        "attn_kv_a_norm": (dim,),
        "attn_output_a": (groups * lora, heads * dim // groups),
        "attn_output_b": (HIDDEN, groups * lora),
        "ffn_norm": (HIDDEN,),
        "ffn_gate_inp": (num_experts, HIDDEN),
        "exp_probs_b.bias": (num_experts,),
        "ffn_gate_exps": (num_experts, inner, HIDDEN),
        "ffn_up_exps": (num_experts, inner, HIDDEN),
        "ffn_down_exps": (num_experts, HIDDEN, inner),
        "ffn_gate_shexp": (inner, HIDDEN),
        "ffn_up_shexp": (inner, HIDDEN),
        "ffn_down_shexp": (HIDDEN, inner),
    }
    for part in ("attn", "ffn"):
        plain |= {f"hc_{part}_fn": (mixes, mixed), f"hc_{part}_base": (mixes,), f"hc_{part}_scale": (3,)}
    of_ratio: dict[int, dict[str, tuple[int, ...]]] = {0: plain}
    for ratio, overlap in ((4, 2), (128, 1)):
        of_ratio[ratio] = plain | _compressor("attn", ratio, overlap * dim, dim)
    of_ratio[4] |= _compressor("indexer", 4, 2 * index, index)
    of_ratio[4] |= {
        "indexer.proj.weight": (index_heads, HIDDEN),
        "indexer.attn_q_b.weight": (index_heads * index, rank),
    }
    keys = {
        "attention.head_count": heads,
        "attention.head_count_kv": 1,
        "attention.key_length": dim,
        "attention.value_length": dim,
        "attention.q_lora_rank": rank,
        "attention.sliding_window": window,
        "attention.indexer.head_count": index_heads,
        "attention.indexer.key_length": index,
        "attention.indexer.top_k": 16,
        "attention.output_group_count": groups,
        "attention.output_lora_rank": lora,
        "attention.compress_rope_freq_base": 160000.0,
        "attention.compress_ratios": list(ratios),
        "hyper_connection.count": streams,
        "hyper_connection.sinkhorn_iterations": 4,
        "hyper_connection.epsilon": 1e-6,
        "hash_layer_count": 0,
        "rope.dimension_count": 64,
        "expert_count": num_experts,
        "expert_used_count": 2,
        "expert_shared_count": 1,
        "expert_feed_forward_length": inner,
        "expert_gating_func": 4,
        "expert_weights_scale": 1.5,
        "expert_weights_norm": True,
        "swiglu_clamp_exp": 10.0,
    }
    head = {"output.weight": (len(TOKENS), HIDDEN), "output_hc_fn.weight": (streams, mixed)}
    head |= {"output_hc_base.weight": (streams,), "output_hc_scale.weight": (1,)}
    return write_gguf(path, "deepseek4", [of_ratio[ratio] for ratio in ratios], keys | stated, head)


def _compressor(part: str, ratio: int, width: int, dim: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{part}_compressor_kv": (width, HIDDEN),
        f"{part}_compressor_gate": (width, HIDDEN),
        f"{part}_compressor_ape": (ratio, width),
        f"{part}_compressor_norm": (dim,),
    }


def write_gguf(
    path: Path,
    architecture: str,
    layers: list[dict[str, tuple[int, ...]]],
    stated: Mapping[str, Any],
    head: Mapping[str, tuple[int, ...]] | None = None,
) -> Path:
    """`layers`: a tensor's name (".weight" is added, unless it has a dot) and its shape, outermost dimension first.
    `stated`: keys of the architecture, without its name; None leaves a default out. `head`: tensors of no layer.
    """
    gguf = pytest.importorskip("gguf", reason="the package gguf, which writes the test files, is not installed")
    writer = gguf.GGUFWriter(path, architecture)
    keys = {
        "block_count": len(layers),
        "context_length": 8192,
        "embedding_length": HIDDEN,
        "feed_forward_length": MLP,
        "attention.head_count": NUM_QO_HEADS,
        "attention.head_count_kv": NUM_KV_HEADS,
        "attention.key_length": HEAD_DIM,
        "attention.value_length": HEAD_DIM,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": HEAD_DIM,
        "rope.freq_base": 10000.0,
        **stated,
    }
    tokenizer = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": TOKENS,
        "tokenizer.ggml.token_type": [1] * len(TOKENS),
        "tokenizer.ggml.merges": ["a b"],
    }
    for key, value in {**{f"{architecture}.{name}": value for name, value in keys.items()}, **tokenizer}.items():
        _add(writer, key, value)
    random = np.random.default_rng(0)
    shapes = {"token_embd.weight": (len(TOKENS), HIDDEN), "output_norm.weight": (HIDDEN,), **(head or {})}
    for index, layer in enumerate(layers):
        shapes |= {f"blk.{index}.{_whole_name(name)}": shape for name, shape in layer.items()}
    for name, shape in shapes.items():
        # Small numbers of one dimension stay in float32, as convert_hf_to_gguf.py leaves them.
        kind = np.float32 if len(shape) == 1 or "conv1d" in name or "norm" in name else np.float16
        writer.add_tensor(name, (random.normal(size=shape) / 16).astype(kind))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _whole_name(name: str) -> str:
    return name.removesuffix(".") if "." in name else f"{name}.weight"


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
