import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.checkpoint import SHARDS, TINY_LATENT, write_checkpoint, write_shard

from deepdraft.cost.bundled_config import bundled_config
from deepdraft.errors import UsageError
from deepdraft.planner.bundled import bundled_model
from deepdraft.planner.shape import Weights
from deepdraft.planner.shape_config import shape_of_config
from deepdraft.planner.weights import checkpoint_weights, estimated_weights, stated_weights

GIB = 2**30


def test_headers_tell_what_every_rank_holds(tmp_path):
    weights = checkpoint_weights(write_checkpoint(tmp_path, SHARDS), shape_of_config(TINY_LATENT, "tiny"))
    assert weights.is_exact
    assert (weights.total_bytes, weights.replicated_bytes, weights.mtp_bytes) == (7000, 200, 1700)
    assert weights.rank_bytes(1) == 7000
    assert weights.rank_bytes(8) == 200 + 6800 // 8


def test_key_and_value_projections_are_shared_by_heads(tmp_path):
    """2 KV heads over 8 ranks: each rank holds a whole one."""
    config = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 2}
    write_shard(
        tmp_path / "a.safetensors",
        {"model.layers.0.self_attn.k_proj.weight": 100, "model.layers.0.self_attn.v_proj.weight": 100,
         "model.layers.0.self_attn.q_proj.weight": 800},
    )  # fmt: skip
    weights = checkpoint_weights(tmp_path, shape_of_config(config, "tiny"))
    assert (weights.kv_projection_bytes, weights.num_kv_heads) == (200, 2)
    assert [weights.rank_bytes(ranks) for ranks in (1, 2, 4, 8)] == [1000, 500, 300, 200]


def test_a_dflash_drafters_projection_of_its_taps_is_whole_on_each_rank(tmp_path):
    config = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 8, "num_key_value_heads": 2}
    write_shard(tmp_path / "a.safetensors", {"fc.weight": 600, "layers.0.mlp.up_proj.weight": 800})
    assert checkpoint_weights(tmp_path, shape_of_config(config, "tiny")).rank_bytes(8) == 600 + 100


@pytest.mark.parametrize(
    ("name", "stored_gib"),
    [("kimi-k2.6", 554.30), ("gpt-oss-120b", 60.8), ("gpt-oss-20b", 12.8), ("qwen3-8b", 15.256),
     ("gemma-3-27b", 51.1), ("deepseek-v3", 626.97)],
)  # fmt: skip
def test_an_estimate_from_the_config_is_near_what_is_stored(name, stored_gib):
    """Scales of quantised weights included: 4 bits in groups of 32 are 4.5."""
    model = bundled_model(name)
    assert model is not None
    estimate = estimated_weights(bundled_config(name).config, model.shape)
    assert estimate.total_bytes / GIB == pytest.approx(stored_gib, rel=0.005)
    assert not estimate.is_exact


def test_what_kimi_k2_holds_on_every_rank():
    """Down-projections 61 x 7168 x (1536 + 576), routers 60 x 384 x 7168, both in bfloat16, and the image encoder."""
    weights = bundled_model("kimi-k2.6").weights  # type: ignore[union-attr]
    text = 2 * (61 * 7168 * 2112 + 60 * 384 * 7168)
    assert text < weights.replicated_bytes < text + 1.0 * GIB
    assert weights.rank_bytes(8) == pytest.approx(71.8 * GIB, rel=0.002)


def test_weights_that_a_config_does_not_tell_are_asked_for():
    shape = bundled_model("qwen3-next-80b-a3b").shape  # type: ignore[union-attr]
    with pytest.raises(UsageError) as refused:
        estimated_weights(bundled_config("qwen3-next-80b-a3b").config, shape)
    assert "--weight-bytes" in (refused.value.hint or "")


def test_weights_of_four_bytes_and_layers_that_differ():
    config = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
              "vocab_size": 100, "torch_dtype": "bfloat16"}  # fmt: skip
    half = estimated_weights(config, shape_of_config(config, "m")).total_bytes
    whole = config | {"torch_dtype": "float32"}
    assert estimated_weights(whole, shape_of_config(whole, "m")).total_bytes == 2 * half
    assert half == 2 * (2 * 100 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128))
    tied = estimated_weights(config | {"tie_word_embeddings": True}, shape_of_config(config, "m")).total_bytes
    assert half - tied == 2 * 100 * 64
    blocks = config | {"block_configs": [{"attention": {"n_heads_in_group": 1}}] * 2}
    with pytest.raises(UsageError, match="don't follow"):
        estimated_weights(blocks, shape_of_config(blocks, "m"))


def test_a_stated_total_smaller_than_what_is_replicated():
    shape = shape_of_config(TINY_LATENT, "tiny")
    weights = stated_weights(TINY_LATENT, shape, 1000, source="as told")
    assert weights.replicated_bytes == weights.rank_bytes(8) == 1000


@given(
    st.integers(0, 10**12), st.floats(0, 0.5), st.floats(0, 0.5), st.integers(1, 64), st.integers(1, 32),
    st.integers(1, 8),
)  # fmt: skip
def test_more_ranks_hold_less_each_and_no_less_together(total, replicated, kv, tp_size, heads, pp_size):
    weights = Weights(
        total_bytes=total, replicated_bytes=int(total * replicated), kv_projection_bytes=int(total * kv),
        num_kv_heads=heads, is_exact=True, source="made up",
    )  # fmt: skip
    assert weights.rank_bytes(tp_size + 1) <= weights.rank_bytes(tp_size)
    assert weights.rank_bytes(tp_size) * tp_size >= total
    assert weights.rank_bytes(tp_size, pp_size) * pp_size >= weights.rank_bytes(tp_size)
    assert weights.rank_bytes(10**9) >= weights.replicated_bytes
