"""Bytes of a pool's token by the engine's own arithmetic, for models whose layers differ."""

import json
from pathlib import Path

import pytest

from deepdraft.cost.device import device
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_cell import sglang_cell
from deepdraft.planner.sglang_choice import sglang_choice

LATENT = {
    "hidden_size": 7168, "num_attention_heads": 128, "kv_lora_rank": 512, "q_lora_rank": 1536,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280,
    "intermediate_size": 18432, "max_position_embeddings": 163840,
}  # fmt: skip
SPARSE = LATENT | {"model_type": "deepseek_v32", "num_hidden_layers": 61, "index_head_dim": 128, "index_topk": 2048}
V4 = {
    "model_type": "deepseek_v4", "hidden_size": 4096, "num_attention_heads": 64, "num_key_value_heads": 1,
    "num_hidden_layers": 43, "head_dim": 512, "qk_rope_head_dim": 64, "index_head_dim": 128, "sliding_window": 128,
    "compress_ratios": [0, 0, *([4, 128] * 20), 4, 0], "vocab_size": 129280, "max_position_embeddings": 1048576,
}  # fmt: skip


def cell(source, version="0.5.23", **flags):
    return sglang_cell(sglang_choice(version, source, device("H200"), SglangSettings(tp_size=8, **flags)))


@pytest.fixture
def written(tmp_path: Path):
    def write(config):
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return open_model(str(path), weight_bytes=10**11)

    return write


def test_layers_with_a_window_count_by_the_ratio_of_their_pool():
    """Gemma 3 at 8 ranks: 10 full layers of 2 heads, 52 with a window; 0.8 window tokens for each full one."""
    row = 2 * 256 * 2
    assert cell(open_model("gemma-3-27b")).counted == pytest.approx(row * (10 + 0.8 * 52))
    assert cell(open_model("gemma-3-27b"), swa_full_tokens_ratio=0.1).counted == pytest.approx(row * (10 + 0.1 * 52))


def test_a_model_of_windows_alone_has_one_pool(written):
    config = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
              "sliding_window": 4096, "max_position_embeddings": 32768}  # fmt: skip
    assert cell(written(config)).counted == 32 * 256 * 2


def test_recurrent_layers_are_fixed():
    """Qwen3-Next at 8 ranks: one head of two on each, an eighth of the states."""
    found = cell(open_model("qwen3-next-80b-a3b"))
    assert found.counted == 12 * 512 * 2
    assert found.fixed == 36 * (32 * 128 * 128 * 4 + 8192 * 3 * 2) // 8


def test_sparse_attention_has_rows_of_its_own_in_fp8(written):
    model = written(SPARSE)
    assert cell(model).counted == 61 * (1152 + 132)
    assert cell(model, kv_cache_dtype="fp8_e4m3").counted == 61 * (656 + 132)
    assert cell(model, kv_cache_dtype="fp8_e4m3", attention_backend="trtllm").counted == 61 * (576 + 132)


def test_an_index_that_layers_share(written):
    model = written(SPARSE | {"indexer_types": ["full", *["shared"] * 3] * 15 + ["full"]})
    assert cell(model).counted == 61 * 1152 + 16 * 132
    assert cell(model, version="0.5.12").counted == 61 * (1152 + 132)


def test_deepseek_v4(written):
    """Rows in pages of 256, 64 and 2, each padded to 576 bytes; states of ratio 4 go with pages of windows."""
    rows = 585 / 4 * 21 + 864 / 128 * 20 + 132 / 4 * 21
    windows = 585 * 43 + 8 / 256 * (8192 + 2048) * 21
    assert cell(written(V4)).counted == pytest.approx(rows + 0.1 * windows)
    assert cell(written(V4), swa_full_tokens_ratio=0.5).counted == pytest.approx(rows + 0.5 * windows)


def test_deepseek_v4_before_it_padded(written):
    """0.5.12: no padding, states of both ratios with windows of 128, and the prediction layer's ratio as a layer."""
    rows = 584 / 4 * 21 + 584 / 128 * 20 + 132 / 4 * 21
    states = 8 / 128 * (8192 + 2048) * 21 + 128 / 128 * 4096 * 20
    config = V4 | {"num_nextn_predict_layers": 1}
    found = cell(written(config), version="0.5.12")
    assert found.counted == pytest.approx(rows + 0.1 * (584 * 44 + states))
    assert found.counted == pytest.approx(15_956, abs=1)


def test_four_bits_take_half_and_a_scale():
    assert cell(open_model("kimi-k2.6"), kv_cache_dtype="fp4_e2m1").counted == 61 * (288 + 36)


def test_pipeline_stages_share_the_layers():
    assert cell(open_model("kimi-k2.6"), pp_size=2).counted == 70_272 / 2


def test_data_parallel_attention_holds_more_heads_a_rank():
    model = open_model("qwen3-8b")
    assert cell(model).counted * 8 == cell(model, dp_size=8, enable_dp_attention=True).counted == 147_456


def test_a_drafter_beside_two_pools_was_not_counted():
    from dataclasses import replace

    drafter = open_model("kimi-k2.6", drafter="kimi-k2.6-dflash").drafter
    model = replace(open_model("gemma-3-27b"), drafter=drafter)
    old = cell(model, version="0.5.12", speculative_algorithm="DFLASH")
    new = cell(model, speculative_algorithm="DFLASH")
    assert old.counted == old.target < old.true
    assert new.counted == new.true == old.true
