from dataclasses import replace

import pytest
from tests.planner.reference import GIB, PRE_BYTES, plan_at, settings_at, started_at

from deepdraft.cost.device import device
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import SglangSettings

H200 = device("H200")


def names(plan, *places):
    return {each.name for each in plan.ledger.at(*places)}


def test_the_drafter_is_counted_as_it_costs():
    """6 layers x 8 heads / 8 ranks x 256 x 2 bytes beside the target's 70,272."""
    plan = plan_at(0.94, version="0.5.23")
    assert plan.bytes_per_token == plan.true_bytes_per_token == 70_272 + 3_072 == 73_344


def test_the_reference_pools_before_draft_weights_are_charged():
    """About 5 % more than 0.5.12's at the same memory: 229.9k, 216.2k and 202.5k."""
    log = started_at(0.85, kv_pool_tokens=None, available_after_weights_bytes=PRE_BYTES - round(72.4 * GIB))
    for fraction, old, new in ((0.94, 218_484, 229_900), (0.93, 205_445, 216_200), (0.92, 192_406, 202_500)):
        plan = plan_at(fraction, log, version="0.5.23")
        draft_bytes = sum(each.num_bytes for each in plan.ledger.at("weights") if "draft" in each.name)
        without_draft = plan.kv_pool_tokens + draft_bytes / plan.bytes_per_token
        without_draft += 100 * 2**20 / plan.bytes_per_token  # the cache for images, which that figure left out
        assert without_draft == pytest.approx(new, rel=0.001)
        assert without_draft / old == pytest.approx(77_184 / 73_344, rel=0.001)


def test_draft_weights_are_inside_the_fraction_and_were_beside_it_before():
    assert "draft weights" in names(plan_at(0.94, version="0.5.23"), "weights")
    assert "draft weights" in names(plan_at(0.94, version="0.5.12"), "slack")


AFTER = SglangSettings(mem_fraction_static=0.9, post_capture_kv_sizing=True, max_running_requests=256)


def test_pools_are_sized_before_capture_unless_switched_on():
    model = open_model("qwen3-8b")
    assert not plan_for("sglang", "0.5.23", model, H200, SglangSettings()).effective["is_sized_after_graph_capture"]
    switched_on = plan_for("sglang", "0.5.23", model, H200, AFTER)
    assert switched_on.effective["is_sized_after_graph_capture"]
    assert any("post-capture" in note for note in switched_on.notes)
    for flags in ({"kv_cache_dtype": "fp4_e2m1"}, {"disable_cuda_graph": True}, {"chunked_prefill_size": -1}):
        plan = plan_for("sglang", "0.5.23", model, H200, replace(AFTER, **flags))
        assert not plan.effective["is_sized_after_graph_capture"]
    latent = plan_at(0.9, version="0.5.23", post_capture_kv_sizing=True)
    old = plan_for("sglang", "0.5.12", model, H200, AFTER)
    assert not latent.effective["is_sized_after_graph_capture"] and not old.effective["is_sized_after_graph_capture"]


def test_after_capture_what_stays_free_is_what_the_fraction_leaves():
    plan = plan_for("sglang", "0.5.23", open_model("qwen3-8b"), H200, AFTER)
    pre_bytes = plan.device_bytes - plan.ledger.total_bytes("outside")
    assert plan.reserve_bytes == pytest.approx(0.1 * pre_bytes, abs=3 * plan.bytes_per_token)
    before = plan_for("sglang", "0.5.23", open_model("qwen3-8b"), H200, replace(AFTER, post_capture_kv_sizing=False))
    assert before.kv_pool_tokens > plan.kv_pool_tokens
    assert before.reserve_bytes < plan.reserve_bytes


def test_steps_without_a_graph_keep_room_free():
    """More requests than the largest graph holds: at least what the ordinary default reserves."""
    tight = replace(AFTER, mem_fraction_static=0.97, max_running_requests=4096, cuda_graph_max_bs=64)
    plan = plan_for("sglang", "0.5.23", open_model("qwen3-8b"), H200, tight)
    assert plan.reserve_bytes == pytest.approx((512 + 1.5 * 8192 + 128) * 2**20, rel=0.001)
    fitting = plan_for("sglang", "0.5.23", open_model("qwen3-8b"), H200, replace(tight, max_running_requests=64))
    assert fitting.reserve_bytes < 5 * GIB
    hybrid = plan_for("sglang", "0.5.23", open_model("qwen3-next-80b-a3b"), H200, replace(tight, tp_size=4))
    assert hybrid.reserve_bytes > 12 * GIB


def test_its_fraction_then_reserves_little():
    """1,536 MiB and 1 GiB for every 8 ranks; 8 GiB more for models that read images."""
    settings = SglangSettings(tp_size=8, post_capture_kv_sizing=True)
    mib = H200.memory_bytes / 2**20  # type: ignore[operator]
    plain = plan_for("sglang", "0.5.23", open_model("qwen3-8b"), H200, settings).effective["mem_fraction_static"]
    assert plain == round((mib - 1536 - 1024) / mib, 3)
    images = plan_for("sglang", "0.5.23", open_model("gemma-3-27b"), H200, settings).effective["mem_fraction_static"]
    assert images == pytest.approx(plain - 8192 / mib)


def test_images_take_a_hundred_mib_of_the_budget():
    """For embeddings, after the pool was sized."""
    plan = plan_at(0.9, version="0.5.23")
    assert (
        next(each for each in plan.ledger.entries if each.name == "cache of image embeddings").num_bytes
        == 100 * 2**20
    )
    assert "cache of image embeddings" not in names(plan_at(0.9, version="0.5.12"), "slack")


def test_a_drafter_no_longer_raises_the_reserve():
    with_drafter = plan_for("sglang", "0.5.23", *_reference(None))
    # 512 + 1.5 x 8,192 + 1,024 + 1,536 MiB, and 2 for each of the 64 requests that a graph then holds.
    assert with_drafter.effective["mem_fraction_static"] / 0.95 == pytest.approx(round(1 - 15_488 / 97_887, 3))


def _reference(fraction):
    from tests.planner.reference import DEVICE, MODEL

    return MODEL, DEVICE, replace(settings_at(0.9), mem_fraction_static=fraction)


def test_prediction_layers_scale_the_cell():
    model = open_model("deepseek-v3", drafter="mtp")
    settings = SglangSettings(tp_size=8, speculative_algorithm="EAGLE")
    plan = plan_for("sglang", "0.5.23", model, H200, settings)
    assert plan.bytes_per_token == int(70_272 * 62 / 61) == plan.true_bytes_per_token
    old = plan_for("sglang", "0.5.12", model, H200, settings)
    assert old.bytes_per_token == 70_272
    assert any("does not count all of the drafter's KV" in note for note in old.notes)
