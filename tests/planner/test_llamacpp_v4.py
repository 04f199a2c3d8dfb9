"""DeepSeek-V4's caches in llama.cpp by hand; test_llamacpp_run holds them against its log."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.errors import UsageError
from deepdraft.planner.llamacpp import plan_llamacpp
from deepdraft.planner.llamacpp_cache import LlamacppKv, llamacpp_kv
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import LlamacppSettings

FLASH = open_model("deepseek-v4-flash")


def kv_of(**flags: Any) -> LlamacppKv:
    return llamacpp_kv(FLASH.shape, LlamacppSettings(**{"ctx_size": 131_072, "parallel": 1} | flags))


def test_flash_at_128k() -> None:
    """Windows in 43 layers; a row of 512 for 4 tokens in 21 layers and for 128 in 20, padded to 1,024 cells; an index
    of 128; states of 8 x 1,024, 128 x 512 and 8 x 256, keys and scores in float32."""
    assert [(cache.kind, cache.num_cells, cache.num_layers, cache.num_bytes) for cache in kv_of().caches] == [
        ("window", 768, 43, 768 * 43 * 1024),
        ("compressed", 32_768, 21, 32_768 * 21 * 1024),
        ("compressed", 1_024, 20, 1_024 * 20 * 1024),
        ("index", 32_768, 21, 32_768 * 21 * 256),
        ("state", 8, 21, 8 * 21 * 1024 * 8),
        ("state", 128, 20, 128 * 20 * 512 * 8),
        ("state", 8, 21, 8 * 21 * 256 * 8),
    ]


def test_an_index_is_of_the_caches_type() -> None:
    index = {cache.kind: cache for cache in kv_of(cache_type_k="q8_0", cache_type_v="q8_0").caches}["index"]
    assert index.num_bytes == 32_768 * 21 * 128 // 32 * 34


def test_two_types_are_refused() -> None:
    with pytest.raises(UsageError, match="must be the same"):
        kv_of(cache_type_k="q8_0")


def test_slots_of_its_own_choice_take_four_times_as_much() -> None:
    """One pool for all is no saving here: each slot has cells of its own."""
    one, four = kv_of(), kv_of(parallel=None)
    assert four.is_unified and not four.is_shared and four.n_ctx_seq == one.n_ctx_seq
    assert four.num_bytes == 4 * one.num_bytes
    assert four.num_tokens == 4 * 131_072
    plan = plan_llamacpp(FLASH, None, LlamacppSettings(ctx_size=131_072))
    assert plan.kv_pool_tokens == 4 * 131_072 and plan.num_full_requests == 4
    assert any("not shared by slots" in note for note in plan.notes)


@given(st.integers(1, 1_048_576), st.integers(1, 8), st.booleans(), st.sampled_from(["f16", "q8_0", "q4_0"]))
def test_cells_hold_the_context_of_every_slot(ctx_size: int, slots: int, unified: bool, dtype: str) -> None:
    kv = kv_of(ctx_size=ctx_size, parallel=slots, kv_unified=unified, cache_type_k=dtype, cache_type_v=dtype)
    by_kind = {cache.kind: cache for cache in kv.caches}
    assert by_kind["index"].num_cells * 4 >= kv.n_ctx_seq
    assert all(cache.num_streams == slots for cache in kv.caches)
    assert all(cache.num_cells % 256 == 0 for cache in kv.caches if cache.kind != "state")
    assert kv.num_tokens >= ctx_size
