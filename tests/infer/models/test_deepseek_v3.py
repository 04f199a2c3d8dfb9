"""The DeepSeek-V3 form against transformers' on the same weights.

The largest logit is about 6. In float32 the two differ by rounding, 5e-5 at most where this was written. In float64
the difference falls to 9e-14: they compute the same function.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

FLOAT32_RTOL = 3e-5
"""Of the largest logit."""
FLOAT64_ATOL = 1e-11
ABSORBED, EXPANDED = 1_000_000, 1

YARN = {
    "rope_type": "yarn",
    "rope_theta": 50_000.0,
    "factor": 32.0,
    "original_max_position_embeddings": 128,
    "beta_fast": 4.0,
    "beta_slow": 1.0,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "no low-rank queries": {"q_lora_rank": None},
    "groups": {"n_group": 4, "topk_group": 2, "num_experts_per_tok": 3},
    "all groups chosen": {"n_group": 2, "topk_group": 2, "num_experts_per_tok": 4},
    "weights not normed": {"norm_topk_prob": False, "routed_scaling_factor": 0.7},
    "two shared experts": {"n_shared_experts": 2},
    "half a head apart": {"rope_interleave": False},
    "half a head apart, no low-rank queries": {"rope_interleave": False, "q_lora_rank": None},
    "yarn": {"rope_parameters": YARN},
    "yarn, mscale unlike mscale_all_dim": {"rope_parameters": {**YARN, "mscale": 0.7}},
    "yarn without mscale": {
        "rope_parameters": {name: value for name, value in YARN.items() if not name.startswith("mscale")}
    },
    "yarn, range not rounded": {"rope_parameters": {**YARN, "truncate": False}},
    "linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 10_000.0, "factor": 4.0}},
    "all dense": {"first_k_dense_replace": 3},
    "none dense": {"first_k_dense_replace": 0},
    "tied": {"tie_word_embeddings": True},
    "one head": {"num_attention_heads": 1, "num_key_value_heads": 1},
    "heads wider than the latent": {"qk_nope_head_dim": 40, "v_head_dim": 40},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("many_queries", [ABSORBED, EXPANDED], ids=["absorbed", "expanded"])
def test_logits_are_those_of_transformers(
    variant: str, many_queries: int, pair_of: Any, run_of: Any, tokens: Callable[..., list[int]]
) -> None:
    pair = pair_of("deepseek_v3", **VARIANTS[variant])
    token_ids = tokens(150)
    theirs = pair.logits(token_ids)
    model = dataclasses.replace(pair.ours, many_queries=many_queries)
    ours = run_of(model).logits("a", token_ids)
    assert theirs.abs().max() > 1
    assert (ours - theirs).abs().max() < FLOAT32_RTOL * theirs.abs().max()


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("many_queries", [ABSORBED, EXPANDED], ids=["absorbed", "expanded"])
def test_in_float64_only_rounding_is_left(
    variant: str, many_queries: int, pair_of: Any, run_of: Any, tokens: Callable[..., list[int]]
) -> None:
    pair = pair_of("deepseek_v3", **VARIANTS[variant])
    token_ids = tokens(40)
    model = dataclasses.replace(pair.load(torch.float64), many_queries=many_queries)
    ours = run_of(model, backend="reference").logits("a", token_ids)
    assert ours.dtype == torch.float64
    assert (ours - pair.logits_float64(token_ids)).abs().max() < FLOAT64_ATOL


def test_at_positions_far_beyond_the_original_context(
    pair_of: Any, run_of: Any, tokens: Callable[..., list[int]]
) -> None:
    """As in a context of 250,000 tokens, without the tokens."""
    pair = pair_of("deepseek_v3", rope_parameters=YARN)
    token_ids = tokens(30)
    theirs = pair.logits(token_ids, first_position=250_000)
    ours = run_of(pair.ours, first_position=250_000).logits("a", token_ids, chunk_len=11)
    assert (ours - theirs).abs().max() < FLOAT32_RTOL * theirs.abs().max()
