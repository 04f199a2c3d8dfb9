"""What single flags free: by the plans themselves, most first."""

from __future__ import annotations

import pytest
from tests.planner.deployment import kimi, qwen_llamacpp, qwen_vllm, sglang

from deepdraft.cost.device import device
from deepdraft.planner.engines import plan_for
from deepdraft.planner.flag import changed
from deepdraft.planner.lever import allowed_plan, freed_by_flag
from deepdraft.planner.open_model import open_model
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import EngineSettings, LlamacppSettings, SglangSettings, VllmSettings


def test_most_first_and_nothing_that_frees_nothing() -> None:
    levers = freed_by_flag(kimi, sglang(max_running_requests=64, context_length=262_144), target_context_len=200_000)
    freed = [lever.freed_bytes for lever in levers]
    assert freed == sorted(freed, reverse=True)
    assert min(freed) > 0
    fields = {lever.change.field for lever in levers}
    assert fields == {
        "kv_cache_dtype", "chunked_prefill_size", "max_running_requests", "expandable_segments", "context_length",
    }  # fmt: skip


def test_a_chunk_frees_what_its_spike_loses() -> None:
    start = sglang()
    for lever in freed_by_flag(kimi, start):
        if lever.change.field != "chunked_prefill_size":
            continue
        after = kimi(changed(start, {"chunked_prefill_size": lever.change.after}))
        assert lever.freed_bytes == kimi(start).prefill_spike_bytes - after.prefill_spike_bytes


def test_a_cache_in_fewer_bytes_frees_by_the_tokens_of_the_pool() -> None:
    start = sglang()
    lever = next(one for one in freed_by_flag(kimi, start) if one.change.field == "kv_cache_dtype")
    before, after = kimi(start), kimi(changed(start, {"kv_cache_dtype": "fp8_e4m3"}))
    saved = before.kv_pool_tokens * (before.bytes_per_token - after.bytes_per_token)
    assert lever.freed_bytes == pytest.approx(saved, rel=0.1)
    assert lever.caution is not None


def test_fewer_requests_free_graph_buffers_in_both_engines() -> None:
    by_sglang = freed_by_flag(kimi, sglang(max_running_requests=64))
    lever = next(one for one in by_sglang if one.change.field == "max_running_requests")
    assert (lever.change.before, lever.change.after) == (64, 8)
    assert lever.freed_bytes > 2 * 2**30  # the index, mask and logit buffers of 64 requests of 200k
    by_vllm = freed_by_flag(qwen_vllm, VllmSettings(max_num_seqs=512))
    assert any(one.change.field == "max_num_seqs" for one in by_vllm)


def test_llamacpp_frees_by_its_cache_types() -> None:
    levers = {lever.change.field: lever for lever in freed_by_flag(qwen_llamacpp, LlamacppSettings(ctx_size=32_768))}
    assert levers["cache_type_k"].freed_bytes == levers["cache_type_v"].freed_bytes
    # 16 bits against 34 bytes for 32 values.
    half = 32_768 * 36 * 8 * 128
    assert levers["cache_type_k"].freed_bytes == pytest.approx(half * (2 - 34 / 32), rel=1e-6)


def v4_sglang(settings: EngineSettings) -> Plan:
    return plan_for("sglang", None, open_model("deepseek-v4-flash"), device("H200"), settings)


def v4_llamacpp(settings: EngineSettings) -> Plan:
    host = device("memory=256GiB,bandwidth=200GB/s")
    return plan_for("llamacpp", None, open_model("deepseek-v4-flash"), host, settings)


def test_smaller_windows_free_by_the_tokens_of_the_pool() -> None:
    """DeepSeek-V4's rows have one type, so there is no lever of a cache in fewer bits."""
    start = SglangSettings(tp_size=4, context_length=200_000, mem_fraction_static=0.85)
    levers = {lever.change.field: lever for lever in freed_by_flag(v4_sglang, start)}
    assert "kv_cache_dtype" not in levers
    lever = levers["swa_full_tokens_ratio"]
    assert (lever.change.after, bool(lever.caution)) == (0.05, True)
    before, after = v4_sglang(start), v4_sglang(changed(start, {"swa_full_tokens_ratio": 0.05}))
    saved = before.kv_pool_tokens * (before.bytes_per_token - after.bytes_per_token)
    assert lever.freed_bytes == pytest.approx(saved, rel=0.05)
    rings = changed(start, {"dsv4_unified_kv": True})
    assert "swa_full_tokens_ratio" not in {lever.change.field for lever in freed_by_flag(v4_sglang, rings)}


def test_a_change_that_the_engine_refuses_is_no_lever() -> None:
    """llama.cpp: DeepSeek-V4's keys hold its values, so one type alone can't be changed."""
    start = LlamacppSettings(ctx_size=65_536, parallel=1)
    assert not {lever.change.field for lever in freed_by_flag(v4_llamacpp, start)} & {"cache_type_k", "cache_type_v"}
    assert allowed_plan(v4_llamacpp, changed(start, {"cache_type_k": "q8_0"})) is None
    both = changed(start, {"cache_type_k": "q8_0", "cache_type_v": "q8_0"})
    assert allowed_plan(v4_llamacpp, both) == v4_llamacpp(both)
