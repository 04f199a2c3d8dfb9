"""Shapes of a few models that long-context deployments name without a config.json at hand."""

from __future__ import annotations

import re

from deepdraft.cost.model_json import ModelShape, shape_of_config

_DEEPSEEK_V3 = {
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "intermediate_size": 18432,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048,
    "first_k_dense_replace": 3,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8"},
}
_KIMI_K2 = _DEEPSEEK_V3 | {
    "num_attention_heads": 64,
    "vocab_size": 163840,
    "n_routed_experts": 384,
    "first_k_dense_replace": 1,
}
_INT4 = {"quantization_config": {"quant_method": "compressed-tensors", "bits": 4}}
_KNOWN = (
    (re.compile(r"kimi[ _-]?k2\.[5-9]", re.IGNORECASE), _KIMI_K2 | _INT4),
    (re.compile(r"kimi[ _-]?k2(?!\.)", re.IGNORECASE), _KIMI_K2),
    (re.compile(r"deepseek[ _-]?(v3(?!\.2)|r1(?!.*distill))", re.IGNORECASE), _DEEPSEEK_V3),
)


def known_model(name: str) -> ModelShape | None:
    """The shape of the model that a name tells: Kimi K2.x (INT4 experts from K2.5 on), DeepSeek V3, V3.1 and R1; None
    for every other name."""
    for pattern, config in _KNOWN:
        if pattern.search(name):
            return shape_of_config(config, name=name)
    return None
