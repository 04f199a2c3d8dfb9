"""What single flags free: by the plans themselves, most first."""

from __future__ import annotations

import pytest
from tests.planner.deployment import kimi, qwen_llamacpp, qwen_vllm, sglang

from deepdraft.planner.flag import changed
from deepdraft.planner.lever import freed_by_flag
from deepdraft.planner.settings import LlamacppSettings, VllmSettings


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
