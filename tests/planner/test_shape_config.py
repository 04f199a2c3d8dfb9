import pytest

from deepdraft.errors import UsageError
from deepdraft.planner.open_model import open_model
from deepdraft.planner.shape_config import num_moe_layers, shape_of_config

PLAIN = {"hidden_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4, "vocab_size": 100}


def test_what_a_plan_reads_of_kimi_k2():
    shape = open_model("kimi-k2.6").shape
    assert (shape.num_layers, shape.hidden, shape.num_qo_heads, shape.vocab_size) == (61, 7168, 64, 163_840)
    assert (shape.num_experts, shape.num_experts_per_token, shape.num_moe_layers, shape.expert_mlp) == (
        384,
        8,
        60,
        2048,
    )
    assert (shape.kv_lora_rank, shape.q_lora_rank, shape.v_head_dim) == (512, 1536, 128)
    assert shape.is_latent and shape.is_multimodal and shape.dtype == "bfloat16"
    assert shape.max_context_len == 262_144


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 6),
        ({"first_k_dense_replace": 2}, 4),
        ({"moe_layer_freq": [0, 0, 1, 1, 1, 1]}, 4),
        ({"moe_layer_freq": 1, "first_k_dense_replace": 1}, 5),
        ({"decoder_sparse_step": 2}, 3),
        ({"interleave_moe_layer_step": 2}, 3),
        ({"hybrid_override_pattern": "ME*EM-"}, 2),
        ({"layers_block_type": ["mamba", "moe", "attention", "moe"]}, 2),
        ({"mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse", "sparse"]}, 5),
    ],
)
def test_layers_with_experts(fields, count):
    assert num_moe_layers(fields, 6) == count


@pytest.mark.parametrize(
    "field", ["num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts"]
)
def test_experts_a_token_by_any_of_their_names(field):
    assert shape_of_config(PLAIN | {"num_experts": 8, field: 2}, "m").num_experts_per_token == 2


@pytest.mark.parametrize(
    ("stated", "dtype"),
    [({"kv_cache_scheme": {"num_bits": 8, "type": "float"}}, "fp8"), ({"kv_cache_quant_algo": "FP8"}, "fp8"),
     ({"kv_cache_scheme": None}, None)],
)  # fmt: skip
def test_a_cache_that_the_checkpoint_was_quantised_for(stated, dtype):
    assert shape_of_config(PLAIN | {"quantization_config": stated}, "m").kv_cache_dtype == dtype


def test_image_encoders_by_the_engines_measure():
    """ViT-L is 1; one with field names of its own counts as ViT-L."""
    assert (
        shape_of_config(
            PLAIN | {"vision_config": {"num_hidden_layers": 24, "hidden_size": 1024}}, "m"
        ).vision_complexity
        == 1
    )
    assert shape_of_config(PLAIN | {"vision_config": {"vt_hidden_size": 9000}}, "m").vision_complexity == 1
    assert shape_of_config(PLAIN, "m").is_multimodal is False
    big = shape_of_config(PLAIN | {"vision_config": {"num_hidden_layers": 48, "hidden_size": 2048}}, "m")
    assert big.vision_complexity == 8


def test_what_is_no_decoder_is_refused():
    with pytest.raises(UsageError, match="is_encoder_decoder"):
        shape_of_config(PLAIN | {"is_encoder_decoder": True}, "m")
    for missing in ("hidden_size", "num_hidden_layers", "num_attention_heads"):
        with pytest.raises(UsageError, match=missing):
            shape_of_config({field: value for field, value in PLAIN.items() if field != missing}, "m")
