"""From a wish to flags: what is offered holds, by its own plan, and no smaller fraction would."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.planner.deployment import CARD, GIB, KIMI, calibrated, kimi, qwen_llamacpp, qwen_vllm, sglang

from deepdraft.errors import UsageError
from deepdraft.planner.back import settings_for
from deepdraft.planner.engines import plan_for
from deepdraft.planner.flag import changed
from deepdraft.planner.frontier import longest_each
from deepdraft.planner.settings import LlamacppSettings, VllmSettings


def test_the_reference_deployment_finds_its_own_way() -> None:
    options = settings_for(calibrated, sglang(), target_context_len=200_000)
    assert all(option.plan.verdict.outcome == "safe" for option in options)
    own = next(option for option in options if option.settings.chunked_prefill_size == 4096)
    assert own.settings == sglang(mem_fraction_static=0.93, chunked_prefill_size=4096, expandable_segments=True)
    assert own.plan.kv_pool_tokens == pytest.approx(205_445, rel=2e-3)
    assert [change.field for change in own.changes] == [
        "mem_fraction_static", "chunked_prefill_size", "expandable_segments",
    ]  # fmt: skip


def test_what_keeps_the_models_results_comes_first() -> None:
    options = settings_for(calibrated, sglang(), target_context_len=200_000)
    assert [bool(option.cautions) for option in options] == sorted(bool(option.cautions) for option in options)
    assert any(option.cautions for option in options)


def test_flags_that_hold_already_only_lose_what_they_do_not_need() -> None:
    good = sglang(mem_fraction_static=0.93, chunked_prefill_size=4096, expandable_segments=True)
    first, *rest = settings_for(calibrated, good, target_context_len=200_000)
    assert first.changes == ()
    assert not rest


@settings(max_examples=25, deadline=None)
@given(
    target=st.integers(2_000, 230_000),
    num_requests=st.integers(1, 12),
    fraction=st.sampled_from([0.8, 0.85, 0.94]),
    chunk=st.sampled_from([2048, 8192, 16384]),
    margin=st.sampled_from([0.0, 0.02, 0.2]),
)
def test_every_option_holds_and_no_smaller_fraction_would(target, num_requests, fraction, chunk, margin) -> None:
    start = sglang(mem_fraction_static=fraction, chunked_prefill_size=chunk, max_running_requests=16)
    wish = {"target_context_len": target, "num_requests": num_requests, "margin_frac": margin}
    options = settings_for(kimi, start, **wish)
    assert options
    for option in options:
        plan = kimi(option.settings)
        assert plan == option.plan
        if not option.holds:
            continue
        assert plan.max_context_len >= target
        assert plan.max_running_requests >= num_requests
        assert longest_each(plan, num_requests) >= target * (1 + margin) - 1
        assert option.margin_tokens == (longest_each(plan, num_requests) - target) * num_requests
        smaller = kimi(changed(option.settings, {"mem_fraction_static": option.settings.mem_fraction_static - 0.005}))
        assert longest_each(smaller, num_requests) < target * (1 + margin)
        for change in option.changes:
            assert getattr(start, change.field) == change.before != change.after
            assert getattr(option.settings, change.field) == change.after


def test_a_wish_beyond_every_flag_gives_the_nearest_misses() -> None:
    options = settings_for(kimi, sglang(context_length=262_144), target_context_len=262_144, num_requests=64)
    assert options
    assert not any(option.holds for option in options)
    assert all(option.margin_tokens < 0 for option in options)


def test_a_wish_beyond_the_models_limit_is_refused_unless_it_is_said_to_be_stretched() -> None:
    natural = replace(sglang(), context_length=None)
    with pytest.raises(UsageError, match="is made for 262,144 tokens") as caught:
        settings_for(kimi, natural, target_context_len=300_000)
    assert "--context-length 300000" in str(caught.value.hint)
    stretched = settings_for(kimi, sglang(context_length=262_144), target_context_len=300_000)
    assert all(option.settings.context_length == 300_000 for option in stretched)


def test_more_requests_than_the_cap_raise_it() -> None:
    options = settings_for(kimi, sglang(max_running_requests=2), target_context_len=20_000, num_requests=6)
    assert all(option.settings.max_running_requests >= 6 for option in options)


def test_vllm() -> None:
    start = VllmSettings(gpu_memory_utilization=0.3, max_model_len=40_960)
    options = settings_for(qwen_vllm, start, target_context_len=40_000, num_requests=4)
    assert options[0].holds
    assert longest_each(options[0].plan, 4) >= 40_000
    assert options[0].settings.gpu_memory_utilization > 0.3


def test_llamacpp_gets_a_context_for_all_slots() -> None:
    options = settings_for(qwen_llamacpp, LlamacppSettings(), target_context_len=20_000, num_requests=3)
    best = options[0]
    assert best.holds
    assert best.plan.max_running_requests == 3
    assert best.plan.max_context_len >= 20_000
    assert best.settings.ctx_size == 3 * 20_480  # 2 % to spare, in whole 256s
    assert [option.settings.ubatch_size for option in options] == [512]  # nothing more than needed


def test_llamacpp_goes_no_further_than_the_model() -> None:
    with pytest.raises(UsageError, match="is made for 40,960 tokens, 50,000 are wanted"):
        settings_for(qwen_llamacpp, LlamacppSettings(), target_context_len=50_000)


def test_two_mistakes_of_a_restart_are_seen_before_it() -> None:
    """The two settings that the deployment tried first: a pool too small, and one that dies in a prefill."""
    small = kimi(sglang(mem_fraction_static=0.85, max_running_requests=64))
    assert small.kv_pool_tokens < 200_000
    assert plan_for("sglang", "0.5.12", KIMI, CARD, sglang()).verdict.outcome == "out_of_memory_in_prefill"
    assert calibrated(sglang()).reserve_bytes < 4.3 * GIB
