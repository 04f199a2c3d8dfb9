"""A windows' pool capped by the running requests, against SGLang's own function and by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.cost.device import device
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import SglangSettings
from deepdraft.planner.sglang_choice import Choice, sglang_choice
from deepdraft.planner.sglang_window import window_cap_tokens

H200 = device("H200")
PLAIN = SglangSettings(disable_radix_cache=True, max_running_requests=256, mem_fraction_static=0.85)


def choice_of(name: str, version: Any = "0.5.23", **flags: Any) -> Choice:
    return sglang_choice(version, open_model(name), H200, replace(PLAIN, **flags))


def plan_of(name: str, **flags: Any) -> Plan:
    return plan_for("sglang", "0.5.23", open_model(name), H200, replace(PLAIN, **flags))


@pytest.mark.parametrize(
    ("name", "flags", "tokens"),
    [
        ("gpt-oss-120b", {}, 82_433),
        ("gemma-3-27b", {"page_size": 64, "max_running_requests": 8, "chunked_prefill_size": 4096}, 18_496),
        ("gemma-3-27b", {"max_running_requests": 64, "chunked_prefill_size": 16384, "dp_size": 8, "tp_size": 8,
                         "enable_dp_attention": True}, 42_001),
    ],
)  # fmt: skip
def test_as_sglang_itself(name: str, flags: dict[str, Any], tokens: int) -> None:
    """What compute_swa_request_cap of 0.5.23 answers for these, in whole pages."""
    assert window_cap_tokens(choice_of(name, **flags)) == tokens


def test_draft_tokens_take_room() -> None:
    """Of 0.5.23, four draft tokens, pages of 16, 48 requests: 48,272."""
    settings = replace(
        PLAIN, page_size=16, max_running_requests=48, speculative_algorithm="DFLASH", speculative_num_draft_tokens=4
    )
    drafter = open_model("kimi-k2.6", drafter="kimi-k2.6-dflash").drafter
    choice = sglang_choice("0.5.23", replace(open_model("gpt-oss-120b"), drafter=drafter), H200, settings)
    assert window_cap_tokens(choice) == 48_272


@pytest.mark.parametrize(
    ("name", "flags"),
    [
        ("gpt-oss-120b", {"disable_radix_cache": False}),
        ("gpt-oss-120b", {"max_running_requests": None}),
        ("gpt-oss-120b", {"chunked_prefill_size": -1}),
        ("gpt-oss-120b", {"version": "0.5.12"}),
        ("qwen3-8b", {}),
        ("kimi-k2.6", {}),
        ("deepseek-v4-flash", {}),
    ],
)
def test_where_nothing_caps_windows(name: str, flags: dict[str, Any]) -> None:
    assert window_cap_tokens(choice_of(name, **flags)) is None


def test_the_rest_is_the_full_pools() -> None:
    """gpt-oss-120b: 18 layers full, 18 with a window, 2,048 bytes each for a token."""
    plan = plan_of("gpt-oss-120b")
    assert plan.bytes_per_token == 18 * 2048
    entries = {entry.name: entry.num_bytes for entry in plan.ledger.entries}
    assert entries["KV pool: windows"] == (82_433 + 1) * 18 * 2048
    assert entries["KV pool"] == (plan.kv_pool_tokens + 1) * 18 * 2048
    parts = plan.ledger.total_bytes("outside", "weights", "pool", "slack")
    assert parts + plan.reserve_bytes == plan.device_bytes
    assert any("--max-running-requests moves the pool" in note for note in plan.notes)


@given(st.integers(1, 4096), st.integers(1, 512))
def test_more_requests_leave_less(max_running: int, more: int) -> None:
    """The cap binds: every request more takes its windows from the pool."""
    few = plan_of("gpt-oss-120b", max_running_requests=max_running)
    many = plan_of("gpt-oss-120b", max_running_requests=max_running + more)
    assert many.kv_pool_tokens < few.kv_pool_tokens or few.kv_pool_tokens == 0


def test_recurrent_states_need_one_slot_without_a_radix_cache() -> None:
    cached, plain = (plan_of("qwen3-next-80b-a3b", tp_size=4, disable_radix_cache=each, max_running_requests=None)
                     for each in (False, True))  # fmt: skip
    assert plain.max_running_requests >= 2.9 * cached.max_running_requests


@pytest.mark.parametrize(("tokens", "held"), [(1280, 0), (1281, 0), (1290, 1290)])
def test_windows_that_admit_no_request_do_not_start(tokens: int, held: int) -> None:
    """Gemma 3's window of 1,024 and a page of 1: a windows' pool of 1,025 is refused, and 0.8 x 1,290 is more."""
    plan = plan_of("gemma-3-27b", disable_radix_cache=False, max_total_tokens=tokens)
    assert plan.kv_pool_tokens == held
    assert (plan.verdict.outcome == "does_not_start") == (held == 0)
