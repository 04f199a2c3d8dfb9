"""`deepdraft plan` with a server that runs: calibrated by what it states, and held against it."""

from __future__ import annotations

import json

import pytest

GIB = 2**30
DEPLOYMENT = ("plan", "kimi-k2.6", "--drafter", "kimi-k2.6-dflash", "--device", "RTX PRO 6000")
INFO = {
    "version": "0.5.12.post1",
    "model_path": "/models/Kimi-K2.6",
    "mem_fraction_static": 0.94,
    "tp_size": 8,
    "chunked_prefill_size": 8192,
    "max_running_requests": 8,
    "context_length": 200_000,
    "kv_cache_dtype": "auto",
    "page_size": 1,
    "attention_backend": "triton",
    "speculative_algorithm": "DFLASH",
    "speculative_num_draft_tokens": 8,
    "max_total_num_tokens": 218_484,
    "api_key": "sk-secret-secret",
    "internal_states": [
        {
            "effective_max_running_requests_per_dp": 8,
            "memory_usage": {"weight": 72.4, "kvcache": 14.3, "token_capacity": 218_484, "graph": {"target": 0.6}},
        }
    ],
}


@pytest.fixture
def sglang(loopback):
    """An SGLang server that states these settings."""

    def begin(**changes):
        info = {**INFO, **changes}
        cards = {"data": [{"id": "kimi-k2.6", "owned_by": "sglang", "max_model_len": info["context_length"]}]}

        def answer(request):
            path = request.path.partition("?")[0]
            body = {"/v1/models": cards, "/server_info": info}.get(path)
            status = 200 if body is not None else 404
            return status, "application/json", json.dumps(body or {"error": "no"}).encode()

        return loopback(answer)

    return begin


def test_a_running_server_calibrates_other_fractions(called, sglang) -> None:
    startup = {**INFO["internal_states"][0]["memory_usage"], "startup_available": 93.73}
    url = sglang(internal_states=[{"memory_usage": startup}])
    for fraction, tokens in ((0.94, 218_484), (0.93, 205_400), (0.92, 192_400), (0.85, 101_134)):
        ran = called(*DEPLOYMENT, "--server", url, "--mem-fraction-static", fraction, "--json")
        assert ran.code == 0, ran.err
        assert ran.json["engine_version"] == "<= 0.5.12"  # the server's own version chose the arithmetic
        assert ran.json["kv_pool_tokens"] == pytest.approx(tokens, rel=2e-3)
        assert ran.json["flags"]["tp_size"] == 8


def test_without_what_was_free_before_it_is_an_estimate_again(called, sglang) -> None:
    plan = called(*DEPLOYMENT, "--server", sglang(), "--mem-fraction-static", 0.85, "--json").json
    assert plan["kv_pool_tokens"] == pytest.approx(101_134, rel=0.02)
    assert plan["is_calibrated"]


def test_a_start_as_planned(called, sglang) -> None:
    words = (
        *DEPLOYMENT, "--engine", "sglang", "--engine-version", "0.5.12", "--tp", 8, "--context-length", 200_000,
        "--max-running-requests", 8, "--pool", "0.85=101134", "--pool", "0.94=218484",
        "--attention-backend", "triton",
    )  # fmt: skip
    ran = called(*words, "--mem-fraction-static", 0.94, "--check", sglang())
    assert ran.code == 0, ran.out
    assert ran.out.startswith("The server is as planned")
    assert max(map(len, ran.out.splitlines())) <= 80
    other = called(*words, "--mem-fraction-static", 0.93, "--check", sglang())
    assert other.code == 1
    assert "--mem-fraction-static" in other.out
    assert "differs" in other.out
    as_json = called(*words, "--mem-fraction-static", 0.93, "--check", sglang(), "--json")
    assert as_json.code == 1
    assert {check["name"] for check in as_json.json["checks"] if not check["agrees"]} >= {"KV pool (tokens)"}


def test_a_server_of_another_engine(called, sglang) -> None:
    ran = called("plan", "qwen3-8b", "--device", "H100", "--engine", "vllm", "--check", sglang())
    assert ran.code == 2
    assert "is sglang, the plan is for vllm" in ran.said[0]


def test_a_key_that_the_server_repeats_is_not_printed(called, sglang) -> None:
    url = sglang(model_path="sk-secret-secret", served_model_name="sk-secret-secret")
    ran = called(*DEPLOYMENT, "--server", url, "--api-key", "sk-secret-secret")
    assert ran.code == 0, ran.err
    assert "sk-secret" not in ran.out + ran.err


def test_a_simulated_vllm_is_checked(called, simulated, physics) -> None:
    server = simulated(dialect="vllm", physics=physics(kv_pool_tokens=50_000, max_context_len=40_960))
    ran = called("plan", "qwen3-8b", "--device", "H100", "--engine", "vllm", "--check", server.url)
    assert ran.code == 1
    assert "KV pool (tokens)" in ran.out
    assert "calibrate the plan by this start" in ran.out


def test_an_engine_without_plans(called, simulated) -> None:
    server = simulated(dialect="openai")
    ran = called("plan", "qwen3-8b", "--device", "H100", "--server", server.url)
    assert ran.code == 2
    assert "plans are made for SGLang, vLLM, llama.cpp" in ran.said[0]
