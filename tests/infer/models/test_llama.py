"""The Llama form, Qwen3 included, against transformers' on the same weights; differences as in test_deepseek_v3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

FLOAT32_RTOL = 3e-5
"""Of the largest logit."""
FLOAT64_ATOL = 1e-11

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, bias": ("llama", {"attention_bias": True}),
    "llama, llama3 scaling": ("llama", {"rope_parameters": LLAMA3, "head_dim": 32}),
    "llama, linear scaling": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 3.0}},
    ),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, every head its own keys": ("llama", {"num_key_value_heads": 6}),
    "llama, one key head": ("llama", {"num_key_value_heads": 1}),
    "llama, head_dim by hidden_size": ("llama", {"head_dim": None}),
    "qwen3": ("qwen3", {}),
    "qwen3, bias": ("qwen3", {"attention_bias": True}),
    "qwen3, yarn": ("qwen3", {"rope_parameters": YARN, "head_dim": 32}),
    "qwen3, yarn with a factor of its own": ("qwen3", {"rope_parameters": {**YARN, "attention_factor": 1.3}}),
    "qwen3, tied": ("qwen3", {"tie_word_embeddings": True}),
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("num_tokens", [1, 7, 150])
def test_logits_are_those_of_transformers(
    variant: str, num_tokens: int, pair_of: Any, run_of: Any, tokens: Callable[..., list[int]]
) -> None:
    form, changes = VARIANTS[variant]
    pair = pair_of(form, **changes)
    token_ids = tokens(num_tokens)
    theirs = pair.logits(token_ids)
    ours = run_of(pair.ours).logits("a", token_ids)
    assert theirs.abs().max() > 1
    assert (ours - theirs).abs().max() < FLOAT32_RTOL * theirs.abs().max()


@pytest.mark.parametrize("variant", VARIANTS)
def test_in_float64_only_rounding_is_left(
    variant: str, pair_of: Any, run_of: Any, tokens: Callable[..., list[int]]
) -> None:
    form, changes = VARIANTS[variant]
    pair = pair_of(form, **changes)
    token_ids = tokens(40)
    ours = run_of(pair.load(torch.float64), backend="reference").logits("a", token_ids)
    assert ours.dtype == torch.float64
    assert (ours - pair.logits_float64(token_ids)).abs().max() < FLOAT64_ATOL
