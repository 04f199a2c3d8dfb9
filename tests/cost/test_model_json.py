import json

import pytest

from deepdraft.cost.known_model import known_model
from deepdraft.cost.model_json import model_shape, shape_of_config
from deepdraft.errors import UsageError

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "torch_dtype": "bfloat16",
}  # fmt: skip
LATENT = {
    "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 64, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 163840,
    "intermediate_size": 18432,
    "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "first_k_dense_replace": 1, "torch_dtype": "bfloat16",
}  # fmt: skip


def test_grouped_query_attention():
    shape = shape_of_config(LLAMA)
    assert (shape.attention, shape.num_kv_heads, shape.key_dim, shape.value_dim) == ("grouped", 8, 128, 128)
    assert shape.kv_bytes_per_token() == 2 * 32 * 8 * 128 * 2 == 131_072
    assert shape.kv_bytes_per_token(tp_size=8, element_bytes=1) == 8_192
    assert (shape.num_experts, shape.num_dense_layers, shape.expert_bits) == (0, 32, 16)


def test_latent_attention_is_held_whole_by_every_rank():
    shape = shape_of_config(LATENT)
    assert shape.attention == "latent" and shape.key_dim == 192
    assert shape.kv_bytes_per_token(1) == shape.kv_bytes_per_token(8) == 70_272
    assert (shape.num_experts, shape.num_experts_per_token, shape.num_dense_layers) == (384, 8, 1)


def test_a_nested_config_is_read_from_inside():
    nested = {
        "model_type": "kimi_k25",
        "text_config": LATENT | {"quantization_config": {"config_groups": {"group_0": {"weights": {"num_bits": 4}}}}},
    }
    shape = shape_of_config(nested)
    assert shape.num_layers == 61 and shape.name == "kimi_k25"
    assert (shape.expert_bits, shape.weight_bits) == (4, 16), "experts are quantised, the rest is not"


@pytest.mark.parametrize(
    ("quantization", "bits"),
    [({"bits": 4}, 4), ({"quant_method": "fp8"}, 8), ({"quant_method": "mxfp4"}, 4), ({"quant_method": "odd"}, 16)],
)
def test_bits_of_quantised_weights(quantization, bits):
    assert shape_of_config(LLAMA | {"quantization_config": quantization}).weight_bits == bits


@pytest.mark.parametrize(
    "field",
    [
        {"index_head_dim": 128},
        {"compress_ratios": [4, 128]},
        {"linear_attn_config": {"kda_layers": [1]}},
        {"hybrid_override_pattern": "M*E"},
        {"num_kv_shared_layers": 10},
        {"layer_types": ["full_attention", "sliding_attention"]},
        {"sliding_window": 4096},
    ],
    ids=lambda field: next(iter(field)),
)
def test_families_whose_cost_is_not_known_are_refused_by_the_field(field):
    with pytest.raises(UsageError, match=next(iter(field))):
        shape_of_config(LLAMA | field)


def test_a_window_that_is_switched_off_is_none():
    assert shape_of_config(LLAMA | {"sliding_window": 4096, "use_sliding_window": False}).num_layers == 32
    assert shape_of_config(LLAMA | {"layer_types": ["full_attention"] * 32}).num_layers == 32


@pytest.mark.parametrize("missing", ["hidden_size", "num_hidden_layers", "num_attention_heads"])
def test_what_is_missing_is_named(missing):
    with pytest.raises(UsageError, match=missing):
        shape_of_config({name: value for name, value in LLAMA.items() if name != missing})


def test_files(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    assert model_shape(path).name == "llama"
    for content in ("{", "[1]", ""):
        path.write_text(content)
        with pytest.raises(UsageError):
            model_shape(path)
    with pytest.raises(UsageError, match="can't read"):
        model_shape(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("name", "experts", "bits"),
    [
        ("Kimi K2.6 (INT4 weights)", 384, 4),
        ("moonshotai/Kimi-K2.5", 384, 4),
        ("moonshotai/Kimi-K2-Instruct", 384, 8),
        ("deepseek-ai/DeepSeek-V3-0324", 256, 8),
        ("deepseek-ai/DeepSeek-R1", 256, 8),
    ],
)
def test_models_known_by_name(name, experts, bits):
    shape = known_model(name)
    assert shape is not None
    assert (shape.num_experts, shape.expert_bits, shape.kv_bytes_per_token(8)) == (experts, bits, 70_272)


@pytest.mark.parametrize("name", ["deepseek-ai/DeepSeek-V3.2", "DeepSeek-R1-Distill-Qwen-7B", "Qwen3-8B", "kimi", ""])
def test_other_names_tell_nothing(name):
    assert known_model(name) is None
