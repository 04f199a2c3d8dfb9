"""A model's shape from its Hugging Face config.json, as far as cost needs it.

Two families of attention are known: multi-head latent (DeepSeek-V2/V3, Kimi K2) and full grouped-query. A model whose
cache does not grow by the same bytes with every token (windows, recurrent layers, sparse indexes, shared caches) is
refused by the field that says so: a number from the wrong formula is worse than none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from deepdraft.cost.kv import gqa_kv_bytes_per_token, latent_kv_bytes_per_token
from deepdraft.errors import UsageError

_REFUSED = {
    "index_head_dim": "a sparse index (DSA)",
    "compress_ratios": "compressed KV (DeepSeek-V4)",
    "linear_attn_config": "linear attention layers",
    "linear_num_key_heads": "linear attention layers",
    "hybrid_override_pattern": "recurrent layers",
    "ssm_state_size": "recurrent layers",
    "mamba_num_heads": "recurrent layers",
    "sliding_window_pattern": "window attention layers",
    "hybrid_layer_pattern": "window attention layers",
    "num_kv_shared_layers": "layers that share their KV",
    "sparse_attention_config": "block-sparse attention",
    "block_configs": "layers that differ from each other",
}
_NESTED = ("text_config", "llm_config", "language_config")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """What a model's cost follows from. All counts for the whole model, before any tensor parallelism."""

    name: str
    attention: Literal["latent", "grouped"]
    num_layers: int
    hidden: int
    num_qo_heads: int
    num_kv_heads: int
    key_dim: int
    """Width of a query and of a key; of latent attention in its expanded form (nope + rope)."""
    value_dim: int
    kv_lora_rank: int | None
    qk_rope_head_dim: int | None
    q_lora_rank: int | None
    vocab_size: int
    dense_mlp: int
    """Width of a dense MLP."""
    num_dense_layers: int
    num_experts: int
    num_experts_per_token: int
    num_shared_experts: int
    expert_mlp: int
    expert_bits: float
    """Bits of a weight of an expert, or of a dense MLP where there are no experts."""
    weight_bits: float
    """Bits of every other weight."""

    def kv_bytes_per_token(self, tp_size: int = 1, element_bytes: int = 2) -> int:
        """Bytes of KV cache of a token on each rank: a latent is held whole by every rank, heads are shared out."""
        if self.attention == "latent":
            assert self.kv_lora_rank is not None
            return latent_kv_bytes_per_token(
                num_layers=self.num_layers,
                kv_lora_rank=self.kv_lora_rank,
                qk_rope_head_dim=self.qk_rope_head_dim or 0,
                element_bytes=element_bytes,
            )
        return gqa_kv_bytes_per_token(
            num_layers=self.num_layers,
            num_kv_heads=self.num_kv_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            element_bytes=element_bytes,
            tp_size=tp_size,
        )


def model_shape(path: Path) -> ModelShape:
    """Read a config.json. Raises UsageError when it can't be read or its attention is of a family not known here."""
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"can't read the model's config {path}: {error}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{path} is not a model's config.json: not a JSON object")
    return shape_of_config(config, name=path.parent.name or path.name)


def shape_of_config(config: Mapping[str, Any], name: str = "model") -> ModelShape:
    """The shape that a parsed config.json describes. Raises UsageError as `model_shape` does."""
    whole = config
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping) and "num_hidden_layers" in inner:
            config = inner
            break
    _refuse(config)
    is_latent = config.get("kv_lora_rank") is not None
    hidden, heads = _whole(config, "hidden_size"), _whole(config, "num_attention_heads")
    experts = _first(config, ("n_routed_experts", "num_experts", "num_local_experts"), 0)
    layers = _whole(config, "num_hidden_layers")
    head_dim = _first(config, ("head_dim",), 0) or hidden // heads
    key_dim = _whole(config, "qk_nope_head_dim") + _first(config, ("qk_rope_head_dim",), 0) if is_latent else head_dim
    weight_bits = _dtype_bits(config.get("torch_dtype") or config.get("dtype") or whole.get("torch_dtype"))
    quantised_bits = _quantised_bits(config.get("quantization_config") or whole.get("quantization_config"))
    return ModelShape(
        name=str(whole.get("model_type") or name),
        attention="latent" if is_latent else "grouped",
        num_layers=layers,
        hidden=hidden,
        num_qo_heads=heads,
        num_kv_heads=_first(config, ("num_key_value_heads",), heads),
        key_dim=key_dim,
        value_dim=_first(config, ("v_head_dim",), head_dim),
        kv_lora_rank=_first(config, ("kv_lora_rank",), 0) if is_latent else None,
        qk_rope_head_dim=_first(config, ("qk_rope_head_dim",), 0) if is_latent else None,
        q_lora_rank=config.get("q_lora_rank") if isinstance(config.get("q_lora_rank"), int) else None,
        vocab_size=_first(config, ("vocab_size",), 0),
        dense_mlp=_first(config, ("intermediate_size",), 0),
        num_dense_layers=_first(config, ("first_k_dense_replace",), 0) if experts else layers,
        num_experts=experts,
        num_experts_per_token=_first(config, ("num_experts_per_tok", "num_experts_per_token"), 0),
        num_shared_experts=_first(config, ("n_shared_experts",), 0),
        expert_mlp=_first(config, ("moe_intermediate_size",), 0) or _first(config, ("intermediate_size",), 0),
        expert_bits=quantised_bits or weight_bits,
        weight_bits=weight_bits if experts else quantised_bits or weight_bits,
    )


def _refuse(config: Mapping[str, Any]) -> None:
    for field, what in _REFUSED.items():
        if config.get(field):
            raise UsageError(f"this model has {what} ({field}), whose cost is not known here yet")
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds):
        raise UsageError("this model's layers differ (layer_types), whose cost is not known here yet")
    if config.get("sliding_window") and config.get("use_sliding_window", True) and not isinstance(kinds, list):
        raise UsageError("this model has window attention (sliding_window), whose cost is not known here yet")


def _whole(config: Mapping[str, Any], field: str) -> int:
    value = config.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"the model's config has no usable {field}: {value!r}")
    return value


def _first(config: Mapping[str, Any], fields: tuple[str, ...], default: int) -> int:
    for field in fields:
        value = config.get(field)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return default


def _dtype_bits(dtype: Any) -> float:
    words = str(dtype or "bfloat16").removeprefix("torch.")
    return {"float32": 32.0, "float16": 16.0, "bfloat16": 16.0}.get(words, 8.0 if "float8" in words else 16.0)


def _quantised_bits(quantization: Any) -> float | None:
    """Bits of the quantised weights; their scales are left out (at most a few per cent)."""
    if not isinstance(quantization, Mapping):
        return None
    bits = quantization.get("bits") or quantization.get("num_bits")
    groups = quantization.get("config_groups")
    if bits is None and isinstance(groups, Mapping):
        for group in groups.values():
            weights = group.get("weights") if isinstance(group, Mapping) else None
            bits = bits or (weights.get("num_bits") if isinstance(weights, Mapping) else None)
    if bits is None and "fp8" in str(quantization.get("quant_method", "")):
        bits = 8
    if bits is None and "mxfp4" in str(quantization.get("quant_method", "")):
        bits = 4
    return float(bits) if isinstance(bits, int | float) and not isinstance(bits, bool) else None
