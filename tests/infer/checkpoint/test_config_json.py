from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.config_json import model_config
from deepdraft.infer.config import GqaShape, MlaShape, ModelConfig, MoeShape
from deepdraft.infer.errors import UnsupportedModel

# The fields of Kimi K2.6's published config.json that say what is computed.
KIMI_TEXT: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "aux_loss_alpha": 0.001,
    "bos_token_id": 163584,
    "eos_token_id": 163585,
    "ep_size": 1,
    "first_k_dense_replace": 1,
    "hidden_act": "silu",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "kv_lora_rank": 512,
    "max_position_embeddings": 262144,
    "model_type": "kimi_k2",
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 1,
    "n_routed_experts": 384,
    "n_shared_experts": 1,
    "norm_topk_prob": True,
    "num_attention_heads": 64,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 61,
    "num_key_value_heads": 64,
    "num_nextn_predict_layers": 0,
    "pretraining_tp": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 64.0,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 4096,
        "type": "yarn",
    },
    "rope_theta": 50000.0,
    "routed_scaling_factor": 2.827,
    "scoring_func": "sigmoid",
    "seq_aux": True,
    "tie_word_embeddings": False,
    "topk_group": 1,
    "topk_method": "noaux_tc",
    "torch_dtype": "bfloat16",
    "v_head_dim": 128,
    "vocab_size": 163840,
}
KIMI = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "media_placeholder_token_id": 163605,
    "text_config": KIMI_TEXT,
    "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27, "model_type": "kimi_k25_vision"},
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
LLAMA: dict[str, Any] = {"model_type": "llama"}
QWEN3: dict[str, Any] = {"model_type": "qwen3"}
DEEPSEEK: dict[str, Any] = {"model_type": "deepseek_v3"}


def test_kimi_k2_nested_in_its_wrapper() -> None:
    config = model_config(KIMI)
    assert config == model_config(KIMI_TEXT)
    assert config.model_type == "deepseek_v3"
    assert (config.num_layers, config.hidden_size, config.vocab_size) == (61, 7168, 163840)
    assert (config.max_context_len, config.dtype, config.eos_token_ids) == (262144, "bfloat16", (163585,))
    assert not config.has_tied_embeddings
    assert config.attention == MlaShape(
        num_qo_heads=64, q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128
    )
    assert config.moe == MoeShape(
        num_experts=384,
        num_experts_per_tok=8,
        moe_intermediate_size=2048,
        num_shared_experts=1,
        num_groups=1,
        num_groups_per_tok=1,
        norm_topk_prob=True,
        routed_scaling_factor=2.827,
        num_dense_layers=1,
    )
    rope = config.rope
    assert (rope.kind, rope.theta, rope.factor, rope.original_max_position_embeddings) == ("yarn", 5e4, 64.0, 4096)
    assert rope.is_interleaved


def test_what_a_wrapper_says_beside_its_text_config() -> None:
    text = {name: value for name, value in KIMI_TEXT.items() if name not in ("eos_token_id", "torch_dtype")}
    config = model_config({**KIMI, "text_config": text, "eos_token_id": [1, 2], "dtype": "float16"})
    assert (config.eos_token_ids, config.dtype) == ((1, 2), "float16")


def attributes(stated: dict[str, Any]) -> Any:
    """The same fields as transformers' own config class reads them, defaults and all."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    name = {"deepseek_v3": "DeepseekV3Config", "llama": "LlamaConfig", "qwen3": "Qwen3Config"}[stated["model_type"]]
    return getattr(transformers, name)(**stated)


def assert_equal(config: ModelConfig, expected: Any) -> None:
    same = {
        "model_type": "model_type",
        "vocab_size": "vocab_size",
        "hidden_size": "hidden_size",
        "intermediate_size": "intermediate_size",
        "num_layers": "num_hidden_layers",
        "rms_norm_eps": "rms_norm_eps",
        "max_context_len": "max_position_embeddings",
        "has_tied_embeddings": "tie_word_embeddings",
        "bos_token_id": "bos_token_id",
    }
    assert {name: getattr(config, name) for name in same} == {a: getattr(expected, b) for a, b in same.items()}
    ids = expected.eos_token_id
    assert list(config.eos_token_ids) == (ids if isinstance(ids, list) else [] if ids is None else [ids])
    if isinstance(config.attention, GqaShape):
        assert config.attention == GqaShape(
            num_qo_heads=expected.num_attention_heads,
            num_kv_heads=expected.num_key_value_heads,
            head_dim=expected.head_dim,
            has_qk_norm=config.model_type == "qwen3",
            has_bias=expected.attention_bias,
        )
        return
    mla = ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    assert {name: getattr(config.attention, name) for name in mla} == {name: getattr(expected, name) for name in mla}
    assert config.attention.num_qo_heads == expected.num_attention_heads
    assert config.rope.is_interleaved == expected.rope_interleave
    moe = {
        "num_experts": "n_routed_experts",
        "num_experts_per_tok": "num_experts_per_tok",
        "moe_intermediate_size": "moe_intermediate_size",
        "num_shared_experts": "n_shared_experts",
        "num_groups": "n_group",
        "num_groups_per_tok": "topk_group",
        "norm_topk_prob": "norm_topk_prob",
        "routed_scaling_factor": "routed_scaling_factor",
        "num_dense_layers": "first_k_dense_replace",
    }
    assert {name: getattr(config.moe, name) for name in moe} == {a: getattr(expected, b) for a, b in moe.items()}


@pytest.mark.parametrize(
    "stated",
    [
        DEEPSEEK,
        LLAMA,
        QWEN3,
        KIMI_TEXT | DEEPSEEK,
        DEEPSEEK | {"q_lora_rank": None, "rope_interleave": False, "eos_token_id": [4, 5], "bos_token_id": None},
        LLAMA | {"num_key_value_heads": 8, "head_dim": 64, "attention_bias": True, "tie_word_embeddings": True},
        LLAMA | {"hidden_size": 576, "num_attention_heads": 9, "num_key_value_heads": None, "eos_token_id": None},
        QWEN3 | {"num_attention_heads": 16, "num_key_value_heads": 2, "sliding_window": None, "eos_token_id": 3},
    ],
)
def test_fields_and_defaults_are_transformers_own(stated: dict[str, Any]) -> None:
    assert_equal(model_config(stated), attributes(stated))


@pytest.mark.parametrize("stated", [DEEPSEEK, LLAMA, QWEN3])
def test_what_transformers_saves_is_read(stated: dict[str, Any], tmp_path: Path) -> None:
    config = attributes(stated)
    config.save_pretrained(tmp_path)
    assert_equal(model_config(tmp_path), config)


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        ({}, "model_type"),
        ({"model_type": "mistral"}, "model_type"),
        ({"model_type": "gpt2"}, "model_type"),
        ({"model_type": "llava", "text_config": LLAMA}, "model_type"),
        (KIMI | {"text_config": KIMI_TEXT | {"model_type": "kimi_linear"}}, "text_config.model_type"),
        (KIMI | {"text_config": KIMI_TEXT | {"topk_method": "greedy"}}, "text_config.topk_method"),
        (KIMI | {"text_config": KIMI_TEXT | {"quantization_config": {"x": 1}}}, "text_config.quantization_config"),
        (LLAMA | {"quantization_config": {"quant_method": "fp8"}}, "quantization_config"),
        (LLAMA | {"compression_config": {"quant_method": "compressed-tensors"}}, "compression_config"),
        (LLAMA | {"hidden_act": "gelu"}, "hidden_act"),
        (LLAMA | {"mlp_bias": True}, "mlp_bias"),
        (LLAMA | {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        (LLAMA | {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_scaling.rope_type"),
        (LLAMA | {"rope_scaling": {"type": "longrope"}}, "rope_scaling.type"),
        (LLAMA | {"rope_parameters": {"rope_type": "proportional"}}, "rope_parameters.rope_type"),
        (LLAMA | {"rope_parameters": {"partial_rotary_factor": 0.25}}, "rope_parameters.partial_rotary_factor"),
        (LLAMA | {"rope_parameters": {"full_attention": {"rope_theta": 1.0}}}, "rope_parameters.full_attention"),
        (LLAMA | {"rope_parameters": {"mrope_section": [1, 2]}}, "rope_parameters.mrope_section"),
        (LLAMA | {"rope_parameters": [1]}, "rope_parameters"),
        (LLAMA | {"rope_scaling": {"type": "yarn"}}, "rope_scaling.factor"),
        (LLAMA | {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "rope_scaling.low_freq_factor"),
        (
            DEEPSEEK | {"rope_scaling": {"type": "linear", "factor": 2, "mscale_all_dim": 1}},
            "rope_scaling.mscale_all_dim",
        ),
        (LLAMA | {"rope_theta": "big"}, "rope_theta"),
        (LLAMA | {"num_hidden_layers": 0}, "num_hidden_layers"),
        (LLAMA | {"num_hidden_layers": True}, "num_hidden_layers"),
        (LLAMA | {"num_hidden_layers": 2.5}, "num_hidden_layers"),
        (LLAMA | {"hidden_size": None}, "hidden_size"),
        (LLAMA | {"rms_norm_eps": 0}, "rms_norm_eps"),
        (LLAMA | {"num_attention_heads": 12, "num_key_value_heads": 5}, "num_key_value_heads"),
        (LLAMA | {"hidden_size": 100, "num_attention_heads": 32}, "num_attention_heads"),
        (LLAMA | {"head_dim": 63}, "head_dim"),
        (LLAMA | {"torch_dtype": "float8_e4m3fn"}, "torch_dtype"),
        (LLAMA | {"dtype": "int4"}, "dtype"),
        (LLAMA | {"eos_token_id": "</s>"}, "eos_token_id"),
        (LLAMA | {"tie_word_embeddings": "yes"}, "tie_word_embeddings"),
        (QWEN3 | {"use_sliding_window": True}, "use_sliding_window"),
        (QWEN3 | {"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        (QWEN3 | {"layer_types": 28}, "layer_types"),
        (LLAMA | {"rope_theta": float("nan")}, "rope_theta"),
        (LLAMA | {"rms_norm_eps": float("inf")}, "rms_norm_eps"),
        (DEEPSEEK | {"topk_method": "group_limited_greedy"}, "topk_method"),
        (DEEPSEEK | {"scoring_func": "softmax"}, "scoring_func"),
        (DEEPSEEK | {"moe_layer_freq": 2}, "moe_layer_freq"),
        (DEEPSEEK | {"attention_bias": True}, "attention_bias"),
        (DEEPSEEK | {"n_routed_experts": None}, "n_routed_experts"),
        (DEEPSEEK | {"n_routed_experts": 12}, "n_group"),
        (DEEPSEEK | {"n_routed_experts": 8}, "n_group"),
        (DEEPSEEK | {"topk_group": 9}, "topk_group"),
        (DEEPSEEK | {"n_routed_experts": 16, "topk_group": 1, "num_experts_per_tok": 3}, "num_experts_per_tok"),
        (DEEPSEEK | {"qk_rope_head_dim": 7}, "qk_rope_head_dim"),
    ],
)
def test_refused_by_the_field(stated: dict[str, Any], field: str) -> None:
    with pytest.raises(UnsupportedModel) as refused:
        model_config(stated)
    assert refused.value.field == field
    assert field in refused.value.message
    assert "\n" not in refused.value.message


def test_quantization_is_refused_by_its_method() -> None:
    with pytest.raises(UnsupportedModel, match="'compressed-tensors'"):
        model_config(LLAMA | {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {}}})


def test_fields_that_only_training_reads_are_ignored() -> None:
    ignored = {"attention_dropout": 0.1, "initializer_range": 0.5, "use_cache": False, "pretraining_tp": 2}
    assert model_config(LLAMA | ignored) == model_config(LLAMA)


def test_the_generation_config_joins_its_eos_ids(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA | {"eos_token_id": 5}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [7, 5]}))
    assert model_config(tmp_path).eos_token_ids == (5, 7)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("config.json", b"{", "config.json is not JSON"),
        ("config.json", b"\xff\xfe\x00", "config.json is not JSON"),
        ("config.json", b"[1]", "holds no JSON object"),
        ("generation_config.json", b"", "generation_config.json is not JSON"),
        ("generation_config.json", b'{"eos_token_id": "x"}', "generation_config.eos_token_id"),
        ("other.json", b"{}", "config.json is missing"),
    ],
)
def test_broken_files_are_said_in_one_line(name: str, content: bytes, words: str, tmp_path: Path) -> None:
    if name.startswith("generation"):
        (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=words) as refused:
        model_config(tmp_path)
    assert "\n" not in refused.value.message


def test_a_folder_with_a_gguf_file_says_which(tmp_path: Path) -> None:
    (tmp_path / "some.gguf").touch()
    with pytest.raises(UsageError) as refused:
        model_config(tmp_path)
    assert refused.value.hint == f"name the file: {tmp_path / 'some.gguf'}"
