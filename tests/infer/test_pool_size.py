"""The pool's tokens, from what was asked for; and that a pool of them takes the bytes that were predicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.errors import UsageError
from deepdraft.infer.kv.layout import KvLayout, LayerShape
from deepdraft.infer.pool_size import context_limit, kv_dtype, kv_pool_tokens

LAYOUT = KvLayout((LayerShape(1, 20, 16, is_latent=True),) * 3, 16, torch.float32)
BYTES_PER_TOKEN = 3 * 20 * 4


def test_a_stated_number_fills_its_last_page() -> None:
    assert kv_pool_tokens(LAYOUT, available_bytes=2**30, max_context_len=64, stated_tokens=100) == 112


def test_a_stated_number_that_does_not_fit() -> None:
    just_enough = 112 * BYTES_PER_TOKEN
    assert kv_pool_tokens(LAYOUT, available_bytes=just_enough, max_context_len=64, stated_tokens=100) == 112
    with pytest.raises(UsageError, match="100 tokens"):
        kv_pool_tokens(LAYOUT, available_bytes=just_enough - 1, max_context_len=64, stated_tokens=100)


def test_a_stated_fraction_is_used_in_full() -> None:
    tokens = kv_pool_tokens(LAYOUT, available_bytes=2**20, max_context_len=64, mem_fraction=0.5)
    assert tokens == 2**19 // (BYTES_PER_TOKEN * 16) * 16
    assert tokens > 4 * 64


def test_by_default_a_quarter_but_no_more_than_four_contexts() -> None:
    assert kv_pool_tokens(LAYOUT, available_bytes=2**30, max_context_len=1000) == 4000
    assert kv_pool_tokens(LAYOUT, available_bytes=2**30, max_context_len=1001) == 4016
    assert kv_pool_tokens(LAYOUT, available_bytes=2**20, max_context_len=10**6) == 1088 == 2**18 // 3840 * 16


@given(available_bytes=st.integers(4 * 3840, 2**40), fraction=st.floats(0.25, 1.0))
def test_a_pool_never_takes_more_than_its_share(available_bytes: int, fraction: float) -> None:
    tokens = kv_pool_tokens(LAYOUT, available_bytes=available_bytes, max_context_len=64, mem_fraction=fraction)
    assert tokens % 16 == 0
    assert tokens * BYTES_PER_TOKEN <= available_bytes * fraction < (tokens + 16) * BYTES_PER_TOKEN + 1


@pytest.mark.parametrize(
    "asked",
    [
        {"mem_fraction": 0.5, "stated_tokens": 100},
        {"mem_fraction": 0.0},
        {"mem_fraction": 1.5},
        {"mem_fraction": float("nan")},
        {"stated_tokens": 0},
        {"mem_fraction": 1e-9},
    ],
)
def test_refusals(asked: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        kv_pool_tokens(LAYOUT, available_bytes=2**20, max_context_len=64, **asked)


def test_the_pool_is_what_was_predicted(tiny: Any) -> None:
    engine = tiny.engine()
    layout = engine.pool.layout
    tokens = kv_pool_tokens(layout, available_bytes=300_000, max_context_len=256, mem_fraction=1.0)
    sized = tiny.engine(kv_pool_tokens=tokens).pool
    assert sized.num_tokens == tokens
    assert sized.num_bytes == tokens * layout.bytes_per_token <= 300_000


def test_the_context_limit(tiny_llama: Any) -> None:
    config = replace(tiny_llama.model.config, max_context_len=512)
    assert context_limit(config, None) == 512
    assert context_limit(config, 100) == 100
    for stated in (0, 513):
        with pytest.raises(UsageError, match="--max-context-len"):
            context_limit(config, stated)


def test_kv_dtypes() -> None:
    assert kv_dtype("bfloat16") is torch.bfloat16
    with pytest.raises(UsageError, match="int8"):
        kv_dtype("int8")
