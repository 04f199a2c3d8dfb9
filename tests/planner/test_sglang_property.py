"""What holds for every plan of an SGLang server, whatever the model, the version and the flags."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.cost.device import device
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import SglangSettings

MODELS = {
    name: open_model(name)
    for name in ("qwen3-8b", "kimi-k2.6", "gemma-3-27b", "gpt-oss-20b", "qwen3-next-80b-a3b", "deepseek-v3")
}
KIMI = open_model("kimi-k2.6", drafter="kimi-k2.6-dflash")
B200 = device("B200")
VERSIONS = st.sampled_from(["0.5.12", "0.5.23"])
SETTINGS = st.builds(
    SglangSettings,
    mem_fraction_static=st.floats(0.55, 0.97),
    tp_size=st.sampled_from([1, 2, 4, 8]),
    context_length=st.sampled_from([None, 8_000, 131_072]),
    chunked_prefill_size=st.sampled_from([None, 2048, 8192]),
    max_running_requests=st.sampled_from([None, 1, 8, 256]),
    page_size=st.sampled_from([1, 16, 64]),
    kv_cache_dtype=st.sampled_from(["auto", "fp8_e4m3"]),
    disable_cuda_graph=st.booleans(),
    expandable_segments=st.booleans(),
    post_capture_kv_sizing=st.booleans(),
)
CASES = (VERSIONS, st.sampled_from(sorted(MODELS)), SETTINGS)


@given(*CASES)
def test_the_parts_fill_the_device_and_the_pool_is_whole_pages(version, name, settings):
    plan = plan_for("sglang", version, MODELS[name], B200, settings)
    assert plan.ledger.total_bytes("outside", "weights", "pool", "slack") + plan.reserve_bytes == plan.device_bytes
    assert plan.kv_pool_tokens % settings.page_size == 0
    low, high = plan.kv_pool_tokens_range
    assert 0 <= low <= plan.kv_pool_tokens <= high
    assert plan.max_request_tokens < plan.max_context_len
    assert 0 <= plan.num_full_requests <= plan.max_running_requests
    assert plan.num_full_requests * plan.max_context_len <= plan.kv_pool_tokens
    assert all(each.error_bytes >= 0 and each.source for each in plan.ledger.entries)


@settings(max_examples=300)
@given(*CASES, st.floats(0, 0.02))
def test_the_pool_grows_with_the_fraction_and_the_reserve_falls(version, name, settings, more):
    now = plan_for("sglang", version, MODELS[name], B200, settings)
    then = plan_for(
        "sglang",
        version,
        MODELS[name],
        B200,
        replace(settings, mem_fraction_static=settings.mem_fraction_static + more),
    )
    # States are had in whole numbers: one more of them may take its bytes from the tokens' pool.
    state_tokens = math.ceil(now.bytes_per_sequence / now.bytes_per_token) + settings.page_size
    assert then.kv_pool_tokens >= now.kv_pool_tokens - (state_tokens if now.bytes_per_sequence else 0)
    slack = 2 * settings.page_size * now.bytes_per_token + 2 * now.bytes_per_sequence + 2**20
    assert then.reserve_bytes <= now.reserve_bytes + slack


@given(*CASES)
def test_cells_of_fp8_are_smaller_and_pools_larger(version, name, settings):
    now = plan_for("sglang", version, MODELS[name], B200, replace(settings, kv_cache_dtype="auto"))
    then = plan_for("sglang", version, MODELS[name], B200, replace(settings, kv_cache_dtype="fp8_e4m3"))
    assert then.bytes_per_token == now.bytes_per_token / 2
    assert then.kv_pool_tokens >= now.kv_pool_tokens


@given(*CASES, st.sampled_from([2048, 4096, 16384]))
def test_a_smaller_chunk_needs_less(version, name, settings, chunk_len):
    small = plan_for("sglang", version, MODELS[name], B200, replace(settings, chunked_prefill_size=chunk_len // 2))
    large = plan_for("sglang", version, MODELS[name], B200, replace(settings, chunked_prefill_size=chunk_len))
    assert small.prefill_spike_bytes <= large.prefill_spike_bytes or small.kv_pool_tokens > large.kv_pool_tokens


@given(VERSIONS, st.floats(0.8, 0.95), st.sampled_from([1, 8, 64]))
def test_the_pool_falls_with_a_drafter(version, fraction, max_running):
    plain = SglangSettings(tp_size=8, mem_fraction_static=fraction, max_running_requests=max_running)
    drafted = replace(plain, speculative_algorithm="DFLASH")
    without = plan_for("sglang", version, KIMI, B200, plain)
    with_drafter = plan_for("sglang", version, KIMI, B200, drafted)
    assert with_drafter.kv_pool_tokens < without.kv_pool_tokens
    assert with_drafter.prefill_spike_bytes > without.prefill_spike_bytes


@pytest.mark.parametrize("name", ["kimi-k2.6", "deepseek-v3"])
@given(st.sampled_from([1, 2, 4, 8]))
def test_latent_rows_are_replicated(name, tp_size):
    plan = plan_for("sglang", None, MODELS[name], B200, SglangSettings(tp_size=tp_size, mem_fraction_static=0.9))
    assert plan.bytes_per_token == 70_272
    assert any("holds all of them" in note for note in plan.notes) == (tp_size > 1)


@given(st.sampled_from([1, 2, 4, 8, 16, 32]))
def test_heads_are_shared_out_to_one_a_rank(tp_size):
    plan = plan_for(
        "sglang", None, MODELS["qwen3-8b"], B200, SglangSettings(tp_size=tp_size, mem_fraction_static=0.9)
    )
    assert plan.bytes_per_token == 147_456 / min(tp_size, 8)


@given(*CASES, st.integers(1, 10**7))
def test_a_stated_cap_is_kept(version, name, settings, cap):
    plan = plan_for("sglang", version, MODELS[name], B200, replace(settings, max_total_tokens=cap))
    assert plan.kv_pool_tokens <= cap
