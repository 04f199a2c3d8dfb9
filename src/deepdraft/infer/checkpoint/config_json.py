"""config.json to `ModelConfig`: the forms deepseek_v3 (Kimi K2.x, also nested in its wrapper), llama and qwen3.

Defaults are those of transformers 5.24's config classes. Whatever would make the model compute something that this
stack has no code for is refused by the field that says so. Rotary embedding is `rope_json`'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.field import Fields
from deepdraft.infer.checkpoint.json_file import json_object
from deepdraft.infer.checkpoint.rope_json import rope_shape
from deepdraft.infer.config import GqaShape, MlaShape, ModelConfig, MoeShape
from deepdraft.infer.errors import UnsupportedModel

_DTYPES = ("float32", "bfloat16", "float16")
# A wrapper may say these beside text_config instead of in it.
_WRAPPER_FIELDS = ("tie_word_embeddings", "bos_token_id", "eos_token_id", "dtype", "torch_dtype")
_FORMS = "supported are deepseek_v3, kimi_k2, kimi_k25, llama and qwen3"


def model_config(source: str | Path | Mapping[str, Any]) -> ModelConfig:
    """The shape of the model in a folder (generation_config.json's EOS ids join), or of a config's own fields.

    Raises UsageError where there is no readable config, UnsupportedModel where it asks for what this stack hasn't.
    """
    if isinstance(source, Mapping):
        return _shape(text_fields(source), generation=Fields({}))
    folder = Path(source)
    path = folder / "generation_config.json"
    generation = json_object(path) if path.is_file() else {}
    return _shape(text_fields(config_object(folder)), generation=Fields(generation, path="generation_config."))


def config_object(folder: Path) -> dict[str, Any]:
    """config.json as it stands. Raises UsageError where the folder holds no model."""
    path = folder / "config.json"
    if path.is_file():
        return json_object(path)
    gguf = sorted(folder.glob("*.gguf"))
    hint = (
        f"name the file: {gguf[0]}" if gguf else "a Hugging Face folder has config.json, safetensors, tokenizer.json"
    )
    raise UsageError(f"no model in {folder}: config.json is missing", hint=hint)


def text_fields(stated: Mapping[str, Any]) -> Fields:
    """The language model's fields: of a Kimi K2.x wrapper, those nested in text_config."""
    _refuse_quantized(Fields(stated))
    kind = stated.get("model_type")
    nested = stated.get("text_config")
    if not (isinstance(kind, str) and kind.startswith(("kimi_k2", "kimi_vl")) and isinstance(nested, Mapping)):
        return Fields(stated)
    outer = {name: stated[name] for name in _WRAPPER_FIELDS if name in stated}
    text = Fields({"model_type": "deepseek_v3", **outer, **nested}, path="text_config.")
    _refuse_quantized(text)
    return text


def _refuse_quantized(config: Fields) -> None:
    for name in ("quantization_config", "compression_config"):
        stated = config.stated.get(name)
        if stated:
            method = stated.get("quant_method") if isinstance(stated, Mapping) else None
            raise config.refused(
                name, method or stated, "quantized weights are supported as GGUF of the llama form only"
            )


def _shape(config: Fields, *, generation: Fields) -> ModelConfig:
    kind = config.stated.get("model_type")
    if kind in ("deepseek_v3", "kimi_k2"):
        return _deepseek_v3(config, generation)
    if kind == "llama":
        return _llama(config, generation)
    if kind == "qwen3":
        return _qwen3(config, generation)
    raise UnsupportedModel(f"{config.path}model_type", kind, reason=_FORMS)


def _deepseek_v3(config: Fields, generation: Fields) -> ModelConfig:
    config.only("topk_method", "noaux_tc")
    config.only("scoring_func", "sigmoid")
    config.only("moe_layer_freq", 1)
    config.only("attention_bias", False)
    max_context_len = config.integer("max_position_embeddings", 4096)
    attention = MlaShape(
        num_qo_heads=config.integer("num_attention_heads", 128),
        q_lora_rank=config.optional_integer("q_lora_rank", 1536),
        kv_lora_rank=config.integer("kv_lora_rank", 512),
        qk_nope_head_dim=config.integer("qk_nope_head_dim", 128),
        qk_rope_head_dim=_even(config, "qk_rope_head_dim", 64),
        v_head_dim=config.integer("v_head_dim", 128),
    )
    return ModelConfig(
        model_type="deepseek_v3",
        attention=attention,
        moe=_moe(config),
        rope=rope_shape(config, max_context_len=max_context_len, is_interleaved=config.flag("rope_interleave", True)),
        **_common(config, vocab_size=129_280, hidden_size=7168, intermediate_size=18_432, num_layers=61),
        max_context_len=max_context_len,
        eos_token_ids=_eos_token_ids(config, generation, 1),
        bos_token_id=config.optional_integer("bos_token_id", 0, minimum=0),
    )


def _moe(config: Fields) -> MoeShape:
    num_experts = config.integer("n_routed_experts", 256)
    num_groups = config.integer("n_group", 8)
    num_groups_per_tok = config.integer("topk_group", 4)
    num_experts_per_tok = config.integer("num_experts_per_tok", 8)
    if num_experts % num_groups or num_experts // num_groups < 2:
        raise config.refused("n_group", num_groups, f"{num_experts} experts don't make equal groups of two or more")
    if num_groups_per_tok > num_groups:
        raise config.refused("topk_group", num_groups_per_tok, f"there are {num_groups} groups")
    num_candidates = num_experts // num_groups * num_groups_per_tok
    if num_experts_per_tok > num_candidates:
        raise config.refused(
            "num_experts_per_tok", num_experts_per_tok, f"{num_candidates} experts can be chosen from"
        )
    return MoeShape(
        num_experts=num_experts,
        num_experts_per_tok=num_experts_per_tok,
        moe_intermediate_size=config.integer("moe_intermediate_size", 2048),
        num_shared_experts=config.integer("n_shared_experts", 1),
        num_groups=num_groups,
        num_groups_per_tok=num_groups_per_tok,
        norm_topk_prob=config.flag("norm_topk_prob", True),
        routed_scaling_factor=config.number("routed_scaling_factor", 2.5),
        num_dense_layers=config.integer("first_k_dense_replace", 3, minimum=0),
    )


def _llama(config: Fields, generation: Fields) -> ModelConfig:
    config.only("mlp_bias", False)
    max_context_len = config.integer("max_position_embeddings", 2048)
    return ModelConfig(
        model_type="llama",
        attention=_gqa(config, default_head_dim=None, has_qk_norm=False, default_kv_heads=None),
        moe=None,
        rope=rope_shape(config, max_context_len=max_context_len, is_interleaved=False),
        **_common(config, vocab_size=32_000, hidden_size=4096, intermediate_size=11_008, num_layers=32),
        max_context_len=max_context_len,
        eos_token_ids=_eos_token_ids(config, generation, 2),
        bos_token_id=config.optional_integer("bos_token_id", 1, minimum=0),
    )


def _qwen3(config: Fields, generation: Fields) -> ModelConfig:
    config.only("use_sliding_window", False)
    layer_types = config.stated.get("layer_types") or []
    if not isinstance(layer_types, list) or any(kind != "full_attention" for kind in layer_types):
        raise config.refused("layer_types", layer_types, "supported is full_attention in every layer")
    max_context_len = config.integer("max_position_embeddings", 32_768)
    return ModelConfig(
        model_type="qwen3",
        attention=_gqa(config, default_head_dim=128, has_qk_norm=True, default_kv_heads=32),
        moe=None,
        rope=rope_shape(config, max_context_len=max_context_len, is_interleaved=False),
        **_common(config, vocab_size=151_936, hidden_size=4096, intermediate_size=22_016, num_layers=32),
        max_context_len=max_context_len,
        eos_token_ids=_eos_token_ids(config, generation, None),
        bos_token_id=config.optional_integer("bos_token_id", minimum=0),
    )


def _gqa(
    config: Fields, *, default_head_dim: int | None, has_qk_norm: bool, default_kv_heads: int | None
) -> GqaShape:
    num_qo_heads = config.integer("num_attention_heads", 32)
    num_kv_heads = config.optional_integer("num_key_value_heads", default_kv_heads) or num_qo_heads
    if num_qo_heads % num_kv_heads:
        raise config.refused(
            "num_key_value_heads", num_kv_heads, f"{num_qo_heads} query heads can't share them evenly"
        )
    if config.has("head_dim") or default_head_dim is not None:
        head_dim = _even(config, "head_dim", default_head_dim)
    else:
        hidden_size = config.integer("hidden_size", 4096)
        head_dim = hidden_size // num_qo_heads
        if hidden_size % num_qo_heads or head_dim % 2:
            raise config.refused("num_attention_heads", num_qo_heads, f"they don't divide hidden_size {hidden_size}")
    return GqaShape(
        num_qo_heads=num_qo_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        has_qk_norm=has_qk_norm,
        has_bias=config.flag("attention_bias", False),
    )


def _common(
    config: Fields, *, vocab_size: int, hidden_size: int, intermediate_size: int, num_layers: int
) -> dict[str, Any]:
    config.only("hidden_act", "silu")
    return {
        "vocab_size": config.integer("vocab_size", vocab_size),
        "hidden_size": config.integer("hidden_size", hidden_size),
        "intermediate_size": config.integer("intermediate_size", intermediate_size),
        "num_layers": config.integer("num_hidden_layers", num_layers),
        "rms_norm_eps": config.number("rms_norm_eps", 1e-6),
        "has_tied_embeddings": config.flag("tie_word_embeddings", False),
        "dtype": _dtype(config),
    }


def _even(config: Fields, name: str, default: int | None) -> int:
    width = config.integer(name, default)
    if width % 2:
        raise config.refused(name, width, "rotary embedding turns pairs: it must be even")
    return width


def _dtype(config: Fields) -> str:
    """`dtype` since transformers 5, `torch_dtype` before; absent in both, float32."""
    name = "dtype" if config.has("dtype") else "torch_dtype"
    value = config.stated.get(name) or "float32"
    if value not in _DTYPES:
        raise config.refused(name, value, f"supported are {', '.join(_DTYPES)}")
    return str(value)


def _eos_token_ids(config: Fields, generation: Fields, default: int | None) -> tuple[int, ...]:
    """One id or several; generation_config.json often knows more of them than config.json."""
    token_ids: list[int] = []
    for fields, value in (
        (config, config.stated.get("eos_token_id", default)),
        (generation, generation.stated.get("eos_token_id")),
    ):
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(token_id, int) and token_id >= 0 for token_id in listed):
            raise fields.refused("eos_token_id", value, "it must be a token id or a list of them")
        token_ids += listed
    return tuple(dict.fromkeys(token_ids))
