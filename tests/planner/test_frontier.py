"""How long each of so many requests may be: never more than the pool, and less the more there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.deployment import CARD, calibrated, kimi, qwen_llamacpp, qwen_vllm, sglang

from deepdraft.planner.engines import plan_for
from deepdraft.planner.frontier import frontier, longest_each
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import LlamacppSettings, VllmSettings

PLANS = [calibrated(sglang()), kimi(sglang(max_running_requests=48)), qwen_vllm(), qwen_llamacpp()]


def test_the_reference_deployment() -> None:
    points = {point.num_requests: point for point in frontier(calibrated(sglang()))}
    assert set(points) == {1, 2, 4, 8}
    assert points[1].bound_by == "context limit"
    assert (points[2].context_len, points[2].bound_by) == (109_242, "KV pool")


@given(plan=st.sampled_from(PLANS), num_requests=st.integers(1, 4096))
def test_together_they_never_hold_more_than_the_pool(plan, num_requests) -> None:
    assert 0 <= longest_each(plan, num_requests) * num_requests <= plan.kv_pool_tokens
    assert longest_each(plan, num_requests + 1) <= longest_each(plan, num_requests)


@pytest.mark.parametrize("plan", PLANS)
def test_points_fall_and_stay_within_the_limits(plan) -> None:
    points = frontier(plan)
    lens = [point.context_len for point in points]
    assert lens == sorted(lens, reverse=True)
    assert points[0].num_requests == 1
    assert all(point.num_requests <= plan.max_running_requests for point in points)
    assert all(point.context_len <= plan.max_context_len for point in points)


def test_a_hybrid_model_pays_for_its_windows_first() -> None:
    gemma = open_model("gemma-3-27b")
    plan = plan_for("vllm", None, gemma, CARD, VllmSettings(max_model_len=131_072))
    assert plan.bytes_per_sequence > 0
    pool_bytes = plan.ledger.total_bytes("pool")
    assert longest_each(plan, 1) > 10_000
    for num_requests in (1, 3, 10):
        length = longest_each(plan, num_requests)
        used = num_requests * (plan.bytes_per_sequence + length * plan.bytes_per_token)
        if length == 0:
            assert used > pool_bytes - num_requests * plan.bytes_per_token
        else:
            assert pool_bytes - 2 * num_requests * plan.bytes_per_token < used <= pool_bytes


def test_numbers_that_are_asked_for() -> None:
    plan = calibrated(sglang())
    assert [point.num_requests for point in frontier(plan, (3, 8, 9))] == [3, 8]
    with pytest.raises(ValueError, match="one request"):
        longest_each(plan, 0)


def test_slots_of_their_own_are_no_shared_pool() -> None:
    plan = qwen_llamacpp(LlamacppSettings(ctx_size=10_000, parallel=4))
    assert all(point.context_len <= plan.max_context_len for point in frontier(plan))
    assert plan.max_context_len == 2560
