"""Reports of memory that was misjudged, by others' tools or by hand, and the right answer to each.

M01 and M02, the reference deployment, are `test_sglang_0_5_12` and `test_sglang_0_5_23`; M10, llama.cpp's cells, is
`test_llamacpp`'s.
"""

import json

import pytest
from tests.planner.reference import GIB, plan_at

from deepdraft.cost.bundled_config import bundled_config
from deepdraft.cost.device import device
from deepdraft.cost.kv_dtype import BFLOAT16
from deepdraft.cost.kv_family import KvFormat, kv_bytes_per_sequence, kv_bytes_per_token, sequence_kv_bytes
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.shape_config import shape_of_config

BF16 = KvFormat.of(BFLOAT16)


@pytest.mark.parametrize("is_nested", [False, True], ids=["flat", "in text_config"])
def test_m03_latent_attention_is_not_multi_head_attention(is_nested):
    """128 heads of 192 and 128 would be 1,748,992 bytes in some planners: 25 times too much."""
    config = bundled_config("deepseek-v3").config  # type: ignore[union-attr]
    shape = shape_of_config({"text_config": config} if is_nested else config, "DeepSeek-V3")
    for tp_size in (1, 8, 16):
        assert kv_bytes_per_token(shape.families, BF16, tp_size) == 61 * 576 * 2 == 70_272


def test_m04_gemma_3_grows_by_its_full_layers_alone():
    shape = open_model("gemma-3-27b").shape
    assert kv_bytes_per_token(shape.families, BF16) == 10 * 16 * 256 * 2
    assert kv_bytes_per_sequence(shape.families, BF16) == 52 * 1024 * 16 * 256 * 2
    all_full = 62 * 16 * 256 * 2 * 131_072
    assert sequence_kv_bytes(shape.families, BF16, 131_072) < 0.21 * all_full


def test_m05_gpt_oss_alternates():
    shape = open_model("gpt-oss-120b").shape
    assert kv_bytes_per_token(shape.families, BF16) == 18 * 8 * 128 * 2 == 36_864
    assert kv_bytes_per_sequence(shape.families, BF16) == 18 * 128 * 8 * 128 * 2


def test_m08_died_at_the_start_and_died_in_a_prefill_turn_opposite_ways():
    start = plan_for("sglang", "0.5.12", open_model("kimi-k2.6"), device("RTX PRO 6000"),
                     SglangSettings(tp_size=8, mem_fraction_static=0.7)).verdict  # fmt: skip
    prefill = plan_at(0.94, max_running_requests=8).verdict
    assert start.outcome == "does_not_start" and "raise the fraction" in " ".join(start.advice)
    assert prefill.outcome == "out_of_memory_in_prefill" and "lower the fraction" in " ".join(prefill.advice)


@pytest.mark.parametrize(
    ("version", "counted", "place"),
    [("0.5.12", 77_184, "slack"), ("0.5.23", 73_344, "weights")],
)
def test_m09_a_drafter_as_that_version_counts_it_and_as_it_costs(version, counted, place):
    plan = plan_at(0.94, version=version)
    assert (plan.bytes_per_token, plan.true_bytes_per_token) == (counted, 73_344)
    weights = next(each for each in plan.ledger.entries if each.name == "draft weights")
    # An eighth of its layers, and all of the projection of its taps.
    projection = 6 * 7168 * 7168 * 2
    assert weights.num_bytes == pytest.approx((6.48 * GIB - projection) / 8 + projection, rel=0.001)
    assert weights.place == place
    pool = next(each for each in plan.ledger.at("pool") if each.name == "draft KV pool")
    assert pool.num_bytes == (plan.kv_pool_tokens + 1) * 3_072


def test_m11_latent_rows_on_8_cards_are_not_pooled():
    """156 GiB of weights (as that planner had them) on 8 x 80 GB: 5 sequences of 131k, not 46."""
    plan = plan_for("sglang", "0.5.12", open_model("kimi-k2.6", weight_bytes=156 * GIB), device("H100"),
                    SglangSettings(tp_size=8, mem_fraction_static=0.88, context_length=131_072))  # fmt: skip
    assert plan.num_full_requests == 5


@pytest.mark.parametrize(("name", "head_dim"), [("qwen3-next-80b-a3b", 256), ("gpt-oss-120b", 64)])
def test_m12_the_width_of_a_head_is_the_configs(name, head_dim):
    config = bundled_config(name).config  # type: ignore[union-attr]
    assert config["hidden_size"] // config["num_attention_heads"] != head_dim
    widths = {each.key_dim for each in open_model(name).shape.families if hasattr(each, "key_dim")}
    assert widths == {head_dim}


def test_m13_a_long_prefill_is_confirmed_by_a_probe():
    stable = {"max_running_requests": 8, "chunked_prefill_size": 4096, "expandable_segments": True}
    for plan in (plan_at(0.85), plan_at(0.93, **stable)):
        assert plan.verdict.outcome == "safe"
        assert any("Confirm with a probe at the longest context" in each for each in plan.verdict.advice)
    doubt = next(each for each in plan_at(0.93).ledger.at("spike") if each.name == "unforeseen at long context")
    assert doubt.error_bytes == 3 * GIB


def test_weights_are_stored_bytes_not_elements(tmp_path):
    """Four-bit weights packed into int32: 554 GiB, not 156."""
    weights = open_model("kimi-k2.6").weights
    assert weights.total_bytes / GIB == pytest.approx(554.3)
    path = tmp_path / "config.json"
    path.write_text(json.dumps(bundled_config("kimi-k2.6").config))  # type: ignore[union-attr]
    assert open_model(str(path)).weights.total_bytes / GIB == pytest.approx(554.3, rel=0.001)
