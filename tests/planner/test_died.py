"""Died at the start, died in a prefill: opposite directions for the fraction."""

from __future__ import annotations

import pytest
from tests.planner.deployment import calibrated, kimi, qwen_llamacpp, qwen_vllm, sglang

from deepdraft.planner.died import died_advice
from deepdraft.planner.settings import VllmSettings


@pytest.mark.parametrize(
    ("plan", "flag"),
    [
        (kimi(sglang(mem_fraction_static=0.75)), "--mem-fraction-static (now 0.75)"),
        (qwen_vllm(VllmSettings(gpu_memory_utilization=0.15)), "--gpu-memory-utilization (now 0.15)"),
    ],
)
def test_the_fraction_goes_opposite_ways(plan, flag) -> None:
    at_start, in_prefill = died_advice("start", plan), died_advice("prefill", plan)
    assert f"raise {flag}" in at_start[0]
    assert "lower" not in at_start[0].lower()
    assert in_prefill[0].startswith(f"Lower {flag}")
    assert "raise" not in " ".join(in_prefill).lower()


def test_a_start_that_died_capturing_graphs_is_the_other_case() -> None:
    third = died_advice("start", kimi(sglang()))[2]
    assert "while graphs were captured: lower it" in third


def test_the_floor_is_where_the_plan_has_no_pool_left() -> None:
    plan = calibrated(sglang())
    floor = float(died_advice("start", plan)[1].split("below ")[1].split(";")[0])
    assert calibrated(sglang(mem_fraction_static=floor - 0.005)).kv_pool_tokens == 0
    assert calibrated(sglang(mem_fraction_static=floor + 0.02)).kv_pool_tokens > 0


def test_what_a_hundredth_moves() -> None:
    advice = died_advice("prefill", calibrated(sglang()))
    assert "takes 13,039 tokens from the pool" in advice[0]
    assert "960 MiB" in advice[0]


def test_the_fraction_that_the_engine_chose_is_named() -> None:
    assert "(now 0.92)" in died_advice("prefill", qwen_vllm())[0]


def test_llamacpp_has_no_fraction() -> None:
    for moment in ("start", "prefill"):
        words = " ".join(died_advice(moment, qwen_llamacpp()))
        assert "fraction" not in words
        assert "--ubatch-size" in words or "--ctx-size" in words
