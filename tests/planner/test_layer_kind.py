import pytest

from deepdraft.errors import UsageError
from deepdraft.planner.layer_kind import layer_kinds

PLAIN = {"num_hidden_layers": 6, "hidden_size": 64, "num_attention_heads": 4}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("rwkv_head_size", 64), ("lightning_attention", True), ("mamba_d_state", 16), ("attn_layer_period", 8),
        ("attn_layer_indices", [3]), ("block_types", ["recurrent"]), ("moba_chunk_size", 4096),
        ("cla_share_factor", 2),
        ("kv_source_layer_ids", [0, 0]), ("sparse_block_topk", 16), ("is_encoder_decoder", True), ("yoco_layers", 3),
        ("recurrent_memory_len", 10), ("attention_window", [512]), ("attn_config", {"sliding_window_size": 4}),
        ("delta_rule_heads", 4), ("conv_l_cache", 3),
    ],
)  # fmt: skip
def test_an_unknown_attention_is_refused_by_its_field(field, value):
    with pytest.raises(UsageError, match=field):
        layer_kinds(PLAIN | {field: value})


@pytest.mark.parametrize(
    "field",
    [
        "rope_theta",
        "attention_bias",
        "attention_dropout",
        "sparse_block_topk",
        "use_sliding_window",
        "mtp_num_layers",
    ],
)
def test_what_is_off_or_says_nothing_of_memory_is_passed_over(field):
    value = False if field == "use_sliding_window" else 0 if field == "sparse_block_topk" else 1
    assert layer_kinds(PLAIN | {field: value}) == ("full",) * 6


def test_an_unknown_kind_of_layer_is_refused():
    with pytest.raises(UsageError, match=r"layer_types.*'retention'"):
        layer_kinds(PLAIN | {"layer_types": ["full_attention", "retention"] * 3})
    with pytest.raises(UsageError, match=r"hybrid_override_pattern.*'R'"):
        layer_kinds(PLAIN | {"hybrid_override_pattern": "MM*R-E", "mamba_num_heads": 1})
    with pytest.raises(UsageError, match="lightning"):
        layer_kinds(PLAIN | {"attn_type_list": [0, 0, 0, 0, 0, 1]})


def test_windows_in_all_or_some_layers():
    assert layer_kinds(PLAIN | {"sliding_window": 4}) == ("window",) * 6
    assert layer_kinds(PLAIN | {"sliding_window": 4, "use_sliding_window": False}) == ("full",) * 6
    some = PLAIN | {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 4}
    assert layer_kinds(some) == ("full",) * 4 + ("window",) * 2
    assert layer_kinds(PLAIN | {"sliding_window": 4, "sliding_window_pattern": 3}).count("full") == 2
    assert layer_kinds(PLAIN | {"sliding_window": 4, "model_type": "gemma2"}).count("full") == 3


def test_a_window_without_its_length_is_refused():
    from deepdraft.planner.families_config import kv_families

    with pytest.raises(UsageError, match="no sliding_window"):
        kv_families(PLAIN | {"layer_types": ["sliding_attention"] * 6, "num_key_value_heads": 4})


def test_llama_4_flags_are_1_where_positions_rotate():
    config = PLAIN | {"model_type": "llama4_text", "attention_chunk_size": 8, "no_rope_layers": [1, 1, 0, 1, 1, 0]}
    assert layer_kinds(config) == ("window", "window", "full") * 2
