"""Ranks that share a sequence's tokens: pools of so many times more tokens, where the engine can do it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cost.device import device
from deepdraft.errors import UsageError
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import SglangSettings

H200 = device("H200")


def planned(name: str = "kimi-k2.6", version: str = "0.5.23", drafter: str | None = None, **flags: Any) -> Plan:
    settings = SglangSettings(**{"tp_size": 8, "mem_fraction_static": 0.85, "context_length": 200_000} | flags)
    return plan_for("sglang", version, open_model(name, drafter=drafter), H200, settings)


@given(st.sampled_from([2, 4, 8]), st.sampled_from([1, 16, 64]))
def test_latent_rows_are_shared_out(dcp_size: int, page_size: int) -> None:
    alone, shared = planned(page_size=page_size), planned(page_size=page_size, dcp_size=dcp_size)
    assert shared.bytes_per_token == 70_272 / dcp_size
    assert shared.kv_pool_tokens == alone.kv_pool_tokens * dcp_size
    assert shared.kv_pool_tokens % (page_size * dcp_size) == 0
    assert any("--dcp-size" in note for note in shared.notes)


def test_heads_are_shared_out_over_fewer_ranks() -> None:
    """Qwen3-8B's 8 heads on 8 ranks: one each; on 4 groups of 2, two each, of half the tokens."""
    assert planned("qwen3-8b").bytes_per_token == planned("qwen3-8b", dcp_size=2).bytes_per_token == 147_456 / 8


def test_a_drafter_is_on_every_rank() -> None:
    flags = {"speculative_algorithm": "DFLASH", "drafter": "kimi-k2.6-dflash"}
    shared = planned(dcp_size=8, **flags)
    assert shared.bytes_per_token == 70_272 / 8 + 3_072
    assert shared.true_bytes_per_token == shared.bytes_per_token


@pytest.mark.parametrize(
    ("name", "flags", "match"),
    [
        ("kimi-k2.6", {"dcp_size": 3}, "does not divide"),
        ("kimi-k2.6", {"dcp_size": 8, "dp_size": 8, "enable_dp_attention": True}, "does not divide"),
        ("kimi-k2.6", {"dcp_size": 0}, "at least 1"),
        ("kimi-k2.6", {"dcp_size": 2, "version": "0.5.12"}, "0.5.23"),
        ("gemma-3-27b", {"dcp_size": 2}, "windows"),
        ("qwen3-next-80b-a3b", {"dcp_size": 2}, "states"),
        ("deepseek-v4-flash", {"dcp_size": 2}, "compressed rows"),
    ],
)
def test_what_is_refused(name: str, flags: dict[str, Any], match: str) -> None:
    with pytest.raises(UsageError, match=match):
        planned(name, **flags)
