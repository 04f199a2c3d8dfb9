"""A plan against a server: what differs is said, what the server does not tell is not."""

from __future__ import annotations

from tests.planner.deployment import calibrated, kimi, qwen_vllm, sglang

from deepdraft.planner.check import checks
from deepdraft.planner.settings import VllmSettings

SERVER = {
    "mem_fraction_static": 0.94,
    "tp_size": 8,
    "chunked_prefill_size": 8192,
    "max_running_requests": 8,
    "context_length": 200_000,
    "kv_cache_dtype": "auto",
    "attention_backend": "triton",
    "speculative_algorithm": "DFLASH",
}
FIGURES = {"kv_pool_tokens": 218_484, "max_context_len": 200_000, "num_slots": 8}


def test_a_server_as_planned() -> None:
    found = checks(calibrated(sglang()), FIGURES, SERVER)
    assert {check.name for check in found} >= {"KV pool (tokens)", "--mem-fraction-static", "requests at once"}
    assert all(check.agrees for check in found)
    pool = next(check for check in found if check.name == "KV pool (tokens)")
    assert abs(pool.difference_frac or 0.0) < 2e-5


def test_the_pool_that_the_deployment_got_at_another_fraction() -> None:
    found = checks(
        calibrated(sglang()), {**FIGURES, "kv_pool_tokens": 101_134}, {**SERVER, "mem_fraction_static": 0.85}
    )
    differing = {check.name: check for check in found if not check.agrees}
    assert set(differing) == {"--mem-fraction-static", "KV pool (tokens)"}
    assert "another setting" in differing["--mem-fraction-static"].remark
    assert differing["KV pool (tokens)"].difference_frac == 101_134 / differing["KV pool (tokens)"].planned - 1


def test_an_estimate_may_be_off_by_its_own_error_and_says_how_to_do_better() -> None:
    plan = kimi(sglang())
    low, high = plan.kv_pool_tokens_range
    for pool, agrees in ((low, True), (high, True), (int(1.2 * high), False)):
        check = next(one for one in checks(plan, {"kv_pool_tokens": pool}, {}) if one.name.startswith("KV pool"))
        assert check.agrees is agrees
        assert ("calibrate" in check.remark) is not agrees


def test_what_is_not_told_is_not_checked() -> None:
    assert checks(kimi(sglang()), {"kv_pool_tokens": None, "num_slots": None}, {}) == ()


def test_the_engines_own_choice_is_checked_too() -> None:
    found = checks(qwen_vllm(VllmSettings()), {}, {"gpu_memory_utilization": "0.9", "block_size": "16"})
    assert {check.name: check.agrees for check in found} == {"--gpu-memory-utilization": False, "--block-size": True}


def test_words_have_no_difference() -> None:
    found = checks(kimi(sglang()), {}, {"attention_backend": "flashinfer"})
    assert [(check.agrees, check.difference_frac) for check in found] == [(False, None)]
