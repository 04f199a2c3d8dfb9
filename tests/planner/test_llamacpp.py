"""llama.cpp's plan by its own arithmetic: cells, caches, and where the memory goes. Real runs: test_llamacpp_run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cost.device import device
from deepdraft.cost.kv_family import Compressed, Grouped, Index, Latent
from deepdraft.errors import UsageError
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.engines import plan_for
from deepdraft.planner.llamacpp import plan_llamacpp
from deepdraft.planner.llamacpp_cache import LlamacppCache, llamacpp_kv
from deepdraft.planner.open_model import open_model
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import LlamacppSettings, VllmSettings
from deepdraft.planner.shape import Model

MIB = 2**20
GIB = 2**30
QWEN3_8B, GEMMA3, GPT_OSS, QWEN3_NEXT, DEEPSEEK = map(
    open_model, ("qwen3-8b", "gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b-a3b", "deepseek-v3")
)
RTX_4090 = device("RTX 4090")


def planned(model: Model = QWEN3_8B, on: Any = None, calibration: Calibration | None = None, **flags: Any) -> Plan:
    return plan_llamacpp(model, on, LlamacppSettings(**flags), calibration)


def caches(model: Model, **flags: Any) -> dict[str, LlamacppCache]:
    return {cache.kind: cache for cache in llamacpp_kv(model.shape, LlamacppSettings(**flags)).caches}


def test_ten_thousand_tokens_over_four_slots() -> None:
    """M10: `-c 10000 -np 4`: padded to 10,240, a quarter of it a slot, which 256 divides."""
    kv = llamacpp_kv(QWEN3_8B.shape, LlamacppSettings(ctx_size=10_000, parallel=4))
    assert (kv.n_ctx, kv.n_ctx_seq, kv.is_unified) == (10_240, 2_560, False)
    (cache,) = kv.caches
    assert (cache.num_cells, cache.num_streams, cache.num_layers) == (2_560, 4, 36)
    assert cache.num_bytes == 10_240 * 147_456
    plan = planned(ctx_size=10_000, parallel=4)
    assert plan.max_request_tokens == plan.max_context_len == 2_560
    assert plan.num_full_requests == plan.max_running_requests == 4
    assert plan.kv_pool_tokens == 10_240


def test_what_a_slot_loses_to_padding_is_added_to_the_pool() -> None:
    kv = llamacpp_kv(QWEN3_8B.shape, LlamacppSettings(ctx_size=1_000, parallel=3))
    assert (kv.n_ctx, kv.n_ctx_seq) == (3 * 512, 512)


def test_blocks_of_q8_0_take_34_bytes_for_32_numbers() -> None:
    """M10: `-ctk q8_0 -ctv q8_0`."""
    plan = planned(ctx_size=8_192, cache_type_k="q8_0", cache_type_v="q8_0")
    assert plan.bytes_per_token == 147_456 / 2 * 34 / 32
    mixed = planned(ctx_size=8_192, cache_type_k="q8_0", cache_type_v="q4_0")
    assert mixed.bytes_per_token == 147_456 / 4 * (34 + 18) / 32


def test_slots_of_its_own_choice_share_one_pool() -> None:
    kv = llamacpp_kv(QWEN3_8B.shape, LlamacppSettings(ctx_size=8_192))
    assert (kv.num_slots, kv.is_unified, kv.n_ctx_seq) == (4, True, 8_192)
    plan = planned(ctx_size=8_192)
    assert (plan.num_full_requests, plan.max_running_requests) == (1, 4)
    assert any("share one pool" in note for note in plan.notes)


def test_a_context_that_was_not_asked_for_is_the_models() -> None:
    assert planned().kv_pool_tokens == 40_960
    assert planned(ctx_size=0).kv_pool_tokens == 40_960
    longer = planned(ctx_size=100_000, parallel=1)
    assert longer.kv_pool_tokens == 100_096
    assert longer.max_request_tokens == 40_960  # a slot is capped at the length of training
    endless = replace(QWEN3_8B, shape=replace(QWEN3_8B.shape, max_context_len=None))
    with pytest.raises(UsageError, match="context limit"):
        planned(endless)


def test_a_window_holds_itself_and_one_batch() -> None:
    """Gemma 3 27B: a window of 1,024 and a batch of 512; in a shared pool a window a slot."""
    assert caches(GEMMA3, ctx_size=32_768, parallel=1)["window"].num_cells == 1_536
    assert caches(GEMMA3, ctx_size=32_768)["window"].num_cells == 4 * 1_024 + 512
    assert caches(GEMMA3, ctx_size=1_024, parallel=1)["window"].num_cells == 1_024
    assert caches(GEMMA3, ctx_size=32_768, parallel=1, swa_full=True)["window"].num_cells == 32_768
    full = caches(GEMMA3, ctx_size=32_768, parallel=1)["full"]
    assert (full.num_layers, full.num_cells) == (10, 32_768)
    assert full.num_bytes == 32_768 * 10 * 16 * (128 + 128) * 2


def test_gpt_oss_alternates() -> None:
    """M05 and M12: 12 of 24 layers are full, heads are 64 wide."""
    found = caches(GPT_OSS, ctx_size=131_072, parallel=1)
    assert found["full"].num_bytes == 131_072 * 12 * 8 * (64 + 64) * 2
    assert found["window"].num_cells == 768  # 128 + 512, padded
    assert planned(GPT_OSS, ctx_size=131_072, parallel=1).bytes_per_token == 24_576


def test_latent_rows_hold_their_values() -> None:
    (cache,) = caches(DEEPSEEK, ctx_size=4_096, parallel=1).values()
    assert (cache.key_bytes, cache.value_bytes) == (4_096 * 70_272, 0)


def test_states_are_of_a_slot_in_float32() -> None:
    """M12 beside them: 12 layers attend, 2 heads of 256."""
    found = caches(QWEN3_NEXT, ctx_size=4_096, parallel=2, kv_unified=True)
    assert found["full"].num_bytes == 4_096 * 24_576
    assert found["state"].value_bytes == 2 * 36 * 32 * 128 * 128 * 4
    assert found["state"].key_bytes == 2 * 36 * 3 * 8_192 * 4
    one = planned(QWEN3_NEXT, ctx_size=4_096, parallel=2, kv_unified=True)
    assert one.bytes_per_sequence == found["state"].num_bytes // 2


def test_keys_of_a_sparse_index_are_stored_as_keys_are() -> None:
    shape = replace(
        DEEPSEEK.shape,
        families=(
            Latent(num_layers=61, kv_lora_rank=512, qk_rope_head_dim=64, is_sparse=True),
            Index(num_layers=61, dim=128),
        ),
    )
    found = llamacpp_kv(shape, LlamacppSettings(ctx_size=4_096, parallel=1)).caches
    assert {cache.kind: cache.num_bytes for cache in found} == {
        "full": 4_096 * 70_272,
        "index": 4_096 * 61 * 128 * 2,
    }


@pytest.mark.parametrize(
    "family",
    [
        Compressed(num_layers=2, dim=512, qk_rope_head_dim=64, stride=4),
        Index(num_layers=2, dim=128, has_scales=False),
    ],
)
def test_caches_of_unknown_layout_are_refused(family: Any) -> None:
    with pytest.raises(UsageError, match=r"several tokens|MiniMax-M3"):
        llamacpp_kv(replace(QWEN3_8B.shape, families=(family,)), LlamacppSettings())


def test_values_without_flash_attention_are_as_wide_as_the_widest() -> None:
    narrow = Grouped(num_layers=2, num_kv_heads=2, key_dim=64, value_dim=64, window=512)
    wide = Grouped(num_layers=2, num_kv_heads=8, key_dim=64, value_dim=64)
    shape = replace(QWEN3_8B.shape, families=(narrow, wide))
    settings = LlamacppSettings(ctx_size=512, parallel=1)
    plain = {cache.kind: cache for cache in llamacpp_kv(shape, settings).caches}
    padded = {cache.kind: cache for cache in llamacpp_kv(shape, replace(settings, flash_attn=False)).caches}
    assert padded["full"] == plain["full"]
    assert padded["window"].value_bytes == 4 * plain["window"].value_bytes
    with pytest.raises(UsageError, match="flash attention"):
        llamacpp_kv(shape, replace(settings, flash_attn=False, cache_type_v="q8_0"))


# -- where memory goes


def test_every_byte_is_in_the_ledger_once() -> None:
    for plan in (planned(), planned(on=RTX_4090, ctx_size=8_192), planned(GEMMA3, on=device("H100"))):
        assert (
            plan.device_bytes == plan.ledger.total_bytes("outside", "weights", "pool", "slack") + plan.reserve_bytes
        )
        assert plan.prefill_spike_bytes == 0


def test_without_a_device_it_says_what_it_needs_and_judges_nothing() -> None:
    plan = planned(ctx_size=8_192)
    assert (plan.device, plan.reserve_bytes) == ("host memory", 0)
    assert "nothing is judged" in plan.verdict.summary
    assert plan.verdict.margin_bytes is None
    names = [entry.name for entry in plan.ledger.entries]
    assert "process and vocabulary" in names
    assert "prompts kept in host memory" in names
    without = planned(ctx_size=8_192, cache_ram_mib=0)
    assert plan.device_bytes - without.device_bytes == 8_192 * MIB


def test_a_host_whose_memory_is_known_is_judged() -> None:
    host = device("bandwidth=50GB/s,memory=64GB")
    assert planned(on=host, n_gpu_layers=0, ctx_size=8_192).verdict.outcome == "safe"
    small = planned(on=device("bandwidth=50GB/s,memory=16GB"), n_gpu_layers=0, ctx_size=8_192)
    assert small.verdict.outcome == "does_not_start"


def test_a_device_that_is_too_small_does_not_start() -> None:
    fits = planned(on=RTX_4090, ctx_size=16_384, parallel=1)
    assert fits.verdict.outcome in ("safe", "tight")
    assert planned(on=RTX_4090, ctx_size=131_072, parallel=1).verdict.outcome == "does_not_start"
    quantised = planned(on=RTX_4090, ctx_size=32_768, parallel=1, cache_type_k="q8_0", cache_type_v="q8_0")
    assert quantised.reserve_bytes > planned(on=RTX_4090, ctx_size=32_768, parallel=1).reserve_bytes


def test_layers_left_on_the_host() -> None:
    whole, half = planned(on=RTX_4090, ctx_size=8_192), planned(on=RTX_4090, ctx_size=8_192, n_gpu_layers=18)
    for place in ("weights", "pool"):
        assert half.ledger.total_bytes(place) == pytest.approx(18 / 37 * whole.ledger.total_bytes(place), rel=0.01)
    assert planned(on=RTX_4090, ctx_size=8_192, n_gpu_layers=999).ledger == whole.ledger


def test_each_of_several_devices_has_a_compute_buffer_of_its_own() -> None:
    one, two = (planned(on=RTX_4090, ctx_size=65_536, num_devices=number) for number in (1, 2))
    assert two.ledger.total_bytes("pool") < 0.6 * one.ledger.total_bytes("pool")
    (buffer,), (own_buffer,) = one.ledger.at("slack"), two.ledger.at("slack")
    assert own_buffer.num_bytes >= buffer.num_bytes
    assert any("compute buffer of its own" in note for note in two.notes)


def test_checkpoints_of_windows_are_told() -> None:
    assert any("--ctx-checkpoints" in note for note in planned(GEMMA3).notes)
    assert not any("--ctx-checkpoints" in note for note in planned().notes)


def test_a_measured_start_is_carried_to_other_settings() -> None:
    then = LlamacppSettings(ctx_size=8_192, parallel=1)
    foreseen = plan_llamacpp(QWEN3_8B, RTX_4090, then)
    seen = Calibration(source="server.log", settings=then, reserve_bytes=foreseen.reserve_bytes - 300 * MIB)
    assert plan_llamacpp(QWEN3_8B, RTX_4090, then, seen).reserve_bytes == seen.reserve_bytes
    longer = replace(then, ctx_size=16_384)
    plain, calibrated = plan_llamacpp(QWEN3_8B, RTX_4090, longer), plan_llamacpp(QWEN3_8B, RTX_4090, longer, seen)
    assert plain.reserve_bytes - calibrated.reserve_bytes == 300 * MIB
    with pytest.raises(UsageError, match="another engine"):
        planned(on=RTX_4090, calibration=Calibration(source="x", settings=VllmSettings()))


def test_a_device_of_unknown_memory_is_refused() -> None:
    with pytest.raises(UsageError, match="memory of"):
        planned(on=device("bandwidth=1TB/s"))


def test_it_stands_in_the_catalogue() -> None:
    settings = LlamacppSettings(ctx_size=8_192)
    assert plan_for("llamacpp", None, QWEN3_8B, RTX_4090, settings) == planned(on=RTX_4090, ctx_size=8_192)


# -- properties


@given(st.integers(1, 300_000), st.integers(1, 16), st.booleans())
def test_cells_are_whole_256s_and_hold_what_was_asked(ctx_size: int, parallel: int, is_unified: bool) -> None:
    settings = LlamacppSettings(ctx_size=ctx_size, parallel=parallel, kv_unified=is_unified)
    kv = llamacpp_kv(QWEN3_8B.shape, settings)
    assert kv.n_ctx >= ctx_size
    assert kv.n_ctx_seq % 256 == kv.n_ctx % 256 == 0
    assert kv.n_ctx == (kv.n_ctx_seq if is_unified else kv.n_ctx_seq * parallel)
    assert sum(cache.num_cells * cache.num_streams for cache in kv.caches) == kv.n_ctx


@given(st.integers(256, 200_000), st.integers(256, 200_000))
def test_memory_grows_with_the_context(one: int, other: int) -> None:
    small, large = (planned(GEMMA3, ctx_size=length, parallel=1).device_bytes for length in sorted((one, other)))
    assert small <= large


@given(st.sampled_from(["f32", "f16", "bf16", "q8_0", "q5_1", "q4_0"]), st.integers(256, 65_536))
def test_the_caches_are_the_pool(cache_type: str, ctx_size: int) -> None:
    plan = planned(GPT_OSS, ctx_size=ctx_size, cache_type_k=cache_type, cache_type_v=cache_type)
    kv = llamacpp_kv(
        GPT_OSS.shape, LlamacppSettings(ctx_size=ctx_size, cache_type_k=cache_type, cache_type_v=cache_type)
    )
    assert plan.ledger.total_bytes("pool") == kv.num_bytes


def test_without_a_stated_memory_only_needs_are_known_and_nothing_is_judged() -> None:
    assert planned(on=None, ctx_size=8_192).verdict.outcome == "unjudged"
