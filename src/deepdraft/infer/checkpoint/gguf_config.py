"""GGUF metadata to `ModelConfig`: files of the llama form (`general.architecture` llama).

Rotary scaling is in the metadata for linear and yarn; Llama 3's is a tensor of divisors (rope_freqs.weight), from
which its four numbers are found again. Keys that would change the computation in a way not coded here are refused.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepdraft.infer.checkpoint.field import Fields
from deepdraft.infer.checkpoint.gguf import GgufFile
from deepdraft.infer.config import GqaShape, ModelConfig, RopeShape
from deepdraft.infer.errors import UnsupportedModel

EMBEDDING = "token_embd.weight"
OUTPUT = "output.weight"
ROPE_DIVISORS = "rope_freqs.weight"

_EOS_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")
_NOT_CODED = {
    "expert_count": "experts are supported in the deepseek_v3 form only",
    "attention.sliding_window": "sliding windows are not supported",
    "attention.scale": "another scale than 1/sqrt(head_dim) is not supported",
    "logit_scale": "scaled logits are not supported",
    "residual_scale": "scaled residuals are not supported",
    "embedding_scale": "scaled embeddings are not supported",
}
# Llama 3.1 and 3.2 as published: low and high frequency factor, length before scaling.
_LLAMA3_LOW, _LLAMA3_HIGH, _LLAMA3_ORIGINAL_LEN = 1.0, 4.0, 8192


def gguf_config(file: GgufFile) -> ModelConfig:
    """The shape of the model in a GGUF file. Raises UnsupportedModel, naming the key, for what has no code here."""
    metadata = file.metadata
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise UnsupportedModel("general.architecture", architecture, reason="GGUF files of the llama form only")
    if EMBEDDING not in file.tensors or len(file.tensors[EMBEDDING].shape) != 2:
        raise UnsupportedModel(EMBEDDING, reason="the file holds no language model")
    llama = Fields({key: _one(value) for key, value in metadata.items()})
    if llama.integer("split.count", 1, minimum=0) > 1:
        raise llama.refused("split.count", metadata["split.count"], "join the parts: llama-gguf-split --merge")
    for name, reason in _NOT_CODED.items():
        llama.absent(f"llama.{name}", reason)
    attention = _attention(llama, has_bias="blk.0.attn_q.bias" in file.tensors)
    vocab_size, hidden_size = file.tensors[EMBEDDING].shape
    return ModelConfig(
        model_type="llama",
        vocab_size=vocab_size,
        hidden_size=hidden_size,
        intermediate_size=llama.integer("llama.feed_forward_length"),
        num_layers=llama.integer("llama.block_count"),
        rms_norm_eps=llama.number("llama.attention.layer_norm_rms_epsilon"),
        attention=attention,
        moe=None,
        rope=_rope(llama, file, attention.head_dim),
        max_context_len=llama.integer("llama.context_length"),
        has_tied_embeddings=OUTPUT not in file.tensors,
        dtype=_block_type(file),
        eos_token_ids=_eos_token_ids(llama),
        bos_token_id=llama.optional_integer("tokenizer.ggml.bos_token_id", minimum=0),
    )


def _one(value: Any) -> Any:
    """A number per layer, where all layers have the same, is one number."""
    is_repeated = (
        isinstance(value, list) and value and isinstance(value[0], int) and value.count(value[0]) == len(value)
    )
    return value[0] if is_repeated else value


def _attention(llama: Fields, *, has_bias: bool) -> GqaShape:
    num_qo_heads = llama.integer("llama.attention.head_count")
    num_kv_heads = llama.integer("llama.attention.head_count_kv", num_qo_heads)
    if num_qo_heads % num_kv_heads:
        raise llama.refused("llama.attention.head_count_kv", num_kv_heads, f"{num_qo_heads} query heads can't share")
    head_dim = llama.integer("llama.attention.key_length", llama.integer("llama.embedding_length") // num_qo_heads)
    for name in ("llama.attention.value_length", "llama.rope.dimension_count"):
        if llama.integer(name, head_dim) != head_dim:
            raise llama.refused(name, llama.stated[name], f"supported is the head's width only, {head_dim}")
    return GqaShape(
        num_qo_heads=num_qo_heads, num_kv_heads=num_kv_heads, head_dim=head_dim, has_qk_norm=False, has_bias=has_bias
    )


def _rope(llama: Fields, file: GgufFile, head_dim: int) -> RopeShape:
    theta = llama.number("llama.rope.freq_base", 10_000.0)
    kind = llama.stated.get("llama.rope.scaling.type", "linear" if llama.has("llama.rope.scale_linear") else "none")
    if ROPE_DIVISORS in file.tensors:
        if kind != "none":
            raise llama.refused("llama.rope.scaling.type", kind, f"it can't go with {ROPE_DIVISORS}")
        return _llama3(theta, head_dim, file.array(ROPE_DIVISORS))
    if kind == "none":
        return RopeShape(theta=theta)
    if kind == "linear":
        name = "llama.rope.scaling.factor" if llama.has("llama.rope.scaling.factor") else "llama.rope.scale_linear"
        return RopeShape(theta=theta, kind="linear", factor=llama.number(name))
    if kind != "yarn":
        raise llama.refused("llama.rope.scaling.type", kind, "supported are none, linear and yarn")
    factor = llama.number("llama.rope.scaling.factor")
    attention_factor = llama.number("llama.rope.scaling.attn_factor", 1.0)
    return RopeShape(
        theta=theta,
        kind="yarn",
        factor=factor,
        original_max_position_embeddings=llama.integer("llama.rope.scaling.original_context_length"),
        beta_fast=llama.number("llama.rope.scaling.yarn_beta_fast", 32.0),
        beta_slow=llama.number("llama.rope.scaling.yarn_beta_slow", 1.0),
        # llama.cpp multiplies this into YaRN's own 0.1 ln(factor) + 1; Hugging Face's field replaces that.
        attention_factor=None if attention_factor == 1.0 else attention_factor * (0.1 * math.log(factor) + 1.0),
    )


def _llama3(theta: float, head_dim: int, divisors: NDArray[np.float32]) -> RopeShape:
    """The largest divisor is the factor; the rest must then follow, or the file is of another kind."""
    shape = RopeShape(
        theta=theta,
        kind="llama3",
        factor=float(divisors.max()),
        original_max_position_embeddings=_LLAMA3_ORIGINAL_LEN,
        low_freq_factor=_LLAMA3_LOW,
        high_freq_factor=_LLAMA3_HIGH,
    )
    expected = _llama3_divisors(theta, head_dim, float(divisors.max()))
    if divisors.shape != expected.shape or not np.allclose(divisors, expected, rtol=1e-4):
        raise UnsupportedModel(ROPE_DIVISORS, "a tensor", reason="supported is the scaling of Llama 3.1 and 3.2 only")
    return shape


def _llama3_divisors(theta: float, head_dim: int, factor: float) -> NDArray[np.float64]:
    """[head_dim / 2]: 1 for short wavelengths, factor for long ones, a ramp of the frequencies between."""
    wavelengths = 2 * math.pi * theta ** (np.arange(0, head_dim, 2) / head_dim)
    ramp = (_LLAMA3_ORIGINAL_LEN / wavelengths - _LLAMA3_LOW) / (_LLAMA3_HIGH - _LLAMA3_LOW)
    smooth = np.clip(ramp, 0.0, 1.0)
    divisors: NDArray[np.float64] = 1.0 / ((1.0 - smooth) / factor + smooth)
    return divisors


def _block_type(file: GgufFile) -> str:
    """What most of the weights are stored as; the embedding and the norms often differ."""
    num_bytes: dict[str, int] = {}
    for tensor in file.tensors.values():
        if tensor.name.startswith("blk."):
            num_bytes[tensor.block_type] = num_bytes.get(tensor.block_type, 0) + tensor.num_bytes
    most = max(num_bytes, key=lambda name: num_bytes[name], default=file.tensors[EMBEDDING].block_type)
    return {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}.get(most, most)


def _eos_token_ids(llama: Fields) -> tuple[int, ...]:
    found = [llama.optional_integer(f"tokenizer.ggml.{name}", minimum=0) for name in _EOS_KEYS]
    return tuple(dict.fromkeys(token_id for token_id in found if token_id is not None))
