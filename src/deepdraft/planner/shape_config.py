"""A model's shape from its Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepdraft.cost.config_field import Config, dtype_name, first_whole, quantization, text_config, whole
from deepdraft.errors import UsageError
from deepdraft.planner.families_config import kv_families, value_dim
from deepdraft.planner.layer_kind import num_hidden_layers
from deepdraft.planner.shape import Shape

_VIT_LARGE = 24 * 1024**2


def shape_of_config(config: Config, name: str) -> Shape:
    """The shape that a parsed config.json describes. Raises UsageError for a config without the fields every language
    model has, and for a kind of attention not known here, by the field that says so."""
    inner = text_config(config)
    if config.get("is_encoder_decoder"):
        raise UsageError("the model has an encoder and cross attention (is_encoder_decoder), not known here")
    num_layers = num_hidden_layers(inner)
    experts = first_whole(inner, ("n_routed_experts", "num_experts", "num_local_experts")) or 0
    is_latent = bool(inner.get("kv_lora_rank"))
    vision = config.get("vision_config")
    return Shape(
        name=name,
        model_type=str(inner.get("model_type") or config.get("model_type") or "unknown"),
        families=kv_families(inner),
        num_layers=num_layers,
        hidden=whole(inner, "hidden_size"),
        num_qo_heads=whole(inner, "num_attention_heads"),
        vocab_size=first_whole(inner, ("vocab_size",)) or first_whole(config, ("vocab_size",)) or 0,
        max_context_len=first_whole(inner, ("max_position_embeddings", "max_seq_len", "n_positions")),
        dtype=dtype_name(config),
        state_dtype=str(inner.get("mamba_ssm_dtype") or inner.get("mamba_ssm_cache_dtype") or "float32"),
        kv_cache_dtype=_kv_cache_dtype(quantization(config)),
        kv_lora_rank=whole(inner, "kv_lora_rank") if is_latent else None,
        qk_nope_head_dim=first_whole(inner, ("qk_nope_head_dim",)),
        qk_rope_head_dim=first_whole(inner, ("qk_rope_head_dim",)),
        v_head_dim=value_dim(inner),
        q_lora_rank=first_whole(inner, ("q_lora_rank",)),
        num_experts=experts,
        num_experts_per_token=_per_token(inner),
        num_moe_layers=num_moe_layers(inner, num_layers) if experts else 0,
        expert_mlp=first_whole(inner, ("moe_intermediate_size", "intermediate_size")) or 0,
        moe_hidden=first_whole(inner, ("routed_expert_hidden_size", "moe_latent_size")),
        dense_mlp=first_whole(inner, ("intermediate_size", "dense_intermediate_size")) or 0,
        num_streams=first_whole(inner, ("hc_mult",)) or 1,
        index_topk=first_whole(inner, ("index_topk",)) or 0,
        num_mtp_layers=first_whole(inner, ("num_nextn_predict_layers", "mtp_num_hidden_layers")) or 0,
        is_multimodal=any(isinstance(config.get(part), Mapping) for part in ("vision_config", "audio_config")),
        vision_complexity=_vision_complexity(vision) if isinstance(vision, Mapping) else 1.0,
    )


def num_moe_layers(config: Config, num_layers: int) -> int:
    """Layers with routed experts. Said as a list, as a letter, as the first of them, or as every so manyeth."""
    pattern = config.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return pattern.count("E")
    for field in ("layers_block_type", "mlp_layer_types"):
        types = config.get(field)
        if isinstance(types, list):
            return sum(1 for each in types if each in ("moe", "sparse"))
    frequency = config.get("moe_layer_freq")
    if isinstance(frequency, list):
        return sum(1 for each in frequency if each)
    num_dense = first_whole(config, ("first_k_dense_replace",)) or 0
    step = first_whole(config, ("decoder_sparse_step", "interleave_moe_layer_step")) or 1
    return (num_layers - num_dense) // step


def _per_token(config: Config) -> int:
    fields = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts", "moe_topk")
    return first_whole(config, fields) or 0


def _kv_cache_dtype(stated: Mapping[str, Any]) -> str | None:
    """The type of cache that the checkpoint's quantisation was made for; fp8 is the only one seen."""
    scheme = stated.get("kv_cache_scheme")
    if isinstance(scheme, Mapping) and scheme.get("num_bits") == 8:
        return "fp8"
    algorithm = stated.get("kv_cache_quant_algo")
    return str(algorithm).lower() if isinstance(algorithm, str) else None


def _vision_complexity(vision: Mapping[str, Any]) -> float:
    """Encoders with field names of their own count as ViT-L, as SGLang's getattr defaults make them."""
    layers = first_whole(vision, ("num_hidden_layers",)) or 24
    hidden = first_whole(vision, ("hidden_size",)) or 1024
    return layers * hidden**2 / _VIT_LARGE
