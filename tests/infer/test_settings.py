"""Settings that can't be used are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from deepdraft.errors import UsageError
from deepdraft.infer.settings import EngineSettings, SpeculationSettings


def test_defaults_need_only_the_two_limits() -> None:
    settings = EngineSettings(max_context_len=100, kv_pool_tokens=1600)
    assert settings.kv_pool_tokens % settings.page_size == 0
    assert settings.has_radix_cache and not settings.is_checked


@pytest.mark.parametrize(
    "name", ["max_context_len", "kv_pool_tokens", "page_size", "chunk_len", "max_running_requests"]
)
def test_numbers_below_one(name: str) -> None:
    values: dict[str, Any] = {"max_context_len": 64, "kv_pool_tokens": 64, name: 0}
    with pytest.raises(UsageError, match=name):
        EngineSettings(**values)


def test_a_pool_is_whole_pages() -> None:
    with pytest.raises(UsageError, match="whole pages of 16"):
        EngineSettings(max_context_len=64, kv_pool_tokens=100, page_size=16)


def test_speculation() -> None:
    assert SpeculationSettings().simulate_acceptance_len is None, "never by itself"
    for values in ({"tree_budget": 0}, {"tree_top_k": 0}):
        with pytest.raises(UsageError, match="1 or more"):
            SpeculationSettings(**values)
    with pytest.raises(UsageError, match=r"0\.9"):
        SpeculationSettings(simulate_acceptance_len=0.9)
