"""A model's shape from its Hugging Face config.json, as far as cost needs it.

Two families of attention are known: multi-head latent (DeepSeek-V2/V3, Kimi K2) and full grouped-query. A model whose
cache does not grow by the same bytes with every token (windows, recurrent layers, sparse indexes, shared caches) is
refused by the field that says so: a number from the wrong formula is worse than none.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deepdraft.cost.config_field import (
    Config,
    dtype_name,
    first_whole,
    quantised_bits,
    quantization,
    read_config,
    text_config,
    whole,
)
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
    return shape_of_config(read_config(path), name=path.parent.name or path.name)


def shape_of_config(config: Config, name: str = "model") -> ModelShape:
    """The shape that a parsed config.json describes. Raises UsageError as `model_shape` does."""
    outer, config = config, text_config(config)
    _refuse(config)
    is_latent = config.get("kv_lora_rank") is not None
    hidden, heads = whole(config, "hidden_size"), whole(config, "num_attention_heads")
    experts = _first(config, ("n_routed_experts", "num_experts", "num_local_experts"), 0)
    layers = whole(config, "num_hidden_layers")
    head_dim = _first(config, ("head_dim",), 0) or hidden // heads
    key_dim = whole(config, "qk_nope_head_dim") + _first(config, ("qk_rope_head_dim",), 0) if is_latent else head_dim
    weight_bits = _dtype_bits(dtype_name(outer))
    quantised = quantised_bits(quantization(outer))
    return ModelShape(
        name=str(outer.get("model_type") or name),
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
        expert_bits=quantised or weight_bits,
        weight_bits=weight_bits if experts else quantised or weight_bits,
    )


def _refuse(config: Config) -> None:
    for field, what in _REFUSED.items():
        if config.get(field):
            raise UsageError(f"this model has {what} ({field}), whose cost is not known here yet")
    kinds = config.get("layer_types")
    if isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds):
        raise UsageError("this model's layers differ (layer_types), whose cost is not known here yet")
    if config.get("sliding_window") and config.get("use_sliding_window", True) and not isinstance(kinds, list):
        raise UsageError("this model has window attention (sliding_window), whose cost is not known here yet")


def _first(config: Config, fields: tuple[str, ...], default: int) -> int:
    found = first_whole(config, fields)
    return default if found is None else found


def _dtype_bits(dtype: str) -> float:
    return {"float32": 32.0, "float16": 16.0, "bfloat16": 16.0}.get(dtype, 8.0 if "float8" in dtype else 16.0)
