"""TensorRT-LLM, LMDeploy, Ollama and TGI, by the answers that their sources describe (none was recorded)."""

from __future__ import annotations

import json
from typing import Any

from deepdraft.adapters.body import Wish
from deepdraft.adapters.detect import detect
from deepdraft.records import RequestTrace

TRT_PAGE = (
    'trtllm_kv_cache_max_blocks{model_name="m"} 1000\ntrtllm_kv_cache_tokens_per_block{model_name="m"} 32\n'
    'trtllm_max_batch_size_runtime{model_name="m"} 8\ntrtllm_num_requests_running 1\ntrtllm_num_requests_waiting 2\n'
    'trtllm_kv_cache_config_info{enable_block_reuse="True",api_key="s3cret"} 1\n'
    'trtllm_speculative_config_info{spec_method="eagle3"} 1\n'
)


def with_adapter(tools: Any, all_routes: Any, use: Any, **options: Any) -> Any:
    async def work() -> Any:
        async with tools.small_server(all_routes) as (_, client):
            return await use(await detect(client, **options))

    return tools.run(work())


async def capabilities(adapter: Any) -> Any:
    return adapter.capabilities


async def both(adapter: Any) -> Any:
    return adapter.capabilities, await adapter.reading(1.0)


def models(tools: Any, owner: str) -> Any:
    return tools.Answer(200, {"data": [{"id": "m", "owned_by": owner}]})


def test_tensorrt_llm_with_its_prometheus_page(tools: Any) -> None:
    routes = {
        ("GET", "/v1/models"): models(tools, "someone"),
        ("GET", "/version"): tools.Answer(200, {"version": "1.2.0"}),
        ("GET", "/prometheus/metrics"): tools.Answer(200, TRT_PAGE),
    }
    found, load = with_adapter(tools, routes, both)
    assert (found.engine, found.version) == ("tensorrt_llm", "1.2.0")
    assert (found.kv_pool_tokens, found.page_size, found.num_slots) == (32_000, 32, 8)
    assert (found.prefix_cache, found.speculation, found.speculation_method) == ("yes", "yes", "eagle3")
    assert (found.max_context_len, found.cold_means) == (None, ())
    assert "s3cret" not in json.dumps(found.settings)
    assert (load.num_running, load.num_waiting) == (1, 2)


def test_tensorrt_llm_with_iterations_alone(tools: Any) -> None:
    iteration = {
        "numActiveRequests": 1,
        "numQueuedRequests": 0,
        "kvCacheStats": {"maxNumBlocks": 10, "tokensPerBlock": 8},
    }
    routes = {
        ("GET", "/v1/models"): models(tools, "tensorrt_llm"),
        ("GET", "/metrics"): tools.Answer(200, [{"numActiveRequests": 5}, iteration]),
    }
    found, load = with_adapter(tools, routes, both)
    assert (found.kv_pool_tokens, found.has_counters) == (80, "no")
    assert (load.num_running, load.num_waiting, load.counters) == (1, 0, {})


def test_tensorrt_llm_refuses_what_it_does_not_know(tools: Any) -> None:
    known = {"model", "messages", "prompt", "max_tokens", "temperature", "stream", "stream_options", "ignore_eos"}

    def chat(asked: Any) -> Any:
        unknown = sorted(set(asked.json) - known)
        if unknown:
            words = f"[{{'type': 'extra_forbidden', 'loc': ('body', '{unknown[0]}')}}]"
            return tools.Answer(400, {"object": "error", "message": words, "type": "BadRequestError", "code": 400})
        choice = {"index": 0, "delta": {"content": "a"}, "avg_decoded_tokens_per_iter": 2.5}
        usage = tools.usage(9, 4, prompt_tokens_details={"cached_tokens": 0})
        events = ({"choices": [choice]}, tools.chat_chunk(None, "length"), {"choices": [], "usage": usage})
        return tools.Answer(pieces=(tools.sse(*events),))

    async def use(adapter: Any) -> Any:
        await adapter.settle(limit_s=5.0)
        trace = RequestTrace(server_fields={"avg_decoded_tokens_per_iter": 2.5})
        return adapter, adapter.acceptance(trace, None, None, is_alone=False)

    routes = {("GET", "/v1/models"): models(tools, "tensorrt_llm"), ("POST", "/v1/chat/completions"): chat}
    adapter, acceptance = with_adapter(tools, routes, use, endpoint="chat")
    assert adapter.num_probe_requests == 1  # nothing that it forbids was sent
    assert adapter.capabilities.reports_acceptance == "yes"
    assert adapter.capabilities.reports_cached_tokens == "yes"
    assert acceptance.stated_acceptance_len == 2.5


def test_lmdeploy(tools: Any) -> None:
    page = (
        'lmdeploy:backend_config_info{session_len="8192",max_batch_size="16",enable_prefix_caching="False",'
        'cache_block_seq_len="64",cache_max_entry_count="0.8"} 1.0\n'
        'lmdeploy:num_requests_running{model_name="m"} 1\nlmdeploy:spec_decode_num_drafts_total 0\n'
    )

    async def use(adapter: Any) -> Any:
        return adapter.capabilities, await adapter.reading(1.0), await adapter.tokenize("a b")

    def encode(asked: Any) -> Any:
        assert asked.json["add_bos"] is False
        return tools.Answer(200, {"input_ids": [1, 2], "length": 2})

    routes = {
        ("GET", "/v1/models"): models(tools, "lmdeploy"),
        ("GET", "/metrics"): tools.Answer(200, page),
        ("POST", "/v1/encode"): encode,
    }
    found, load, ids = with_adapter(tools, routes, use)
    assert (found.max_context_len, found.num_slots, found.page_size, found.prefix_cache) == (8192, 16, 64, "no")
    assert (found.speculation, load.num_running, ids) == ("yes", 1, [1, 2])


def test_lmdeploy_without_metrics(tools: Any) -> None:
    found = with_adapter(tools, {("GET", "/v1/models"): models(tools, "lmdeploy")}, capabilities)
    assert (found.has_counters, found.prefix_cache, found.max_context_len) == ("no", "unknown", None)
    assert any("--disable-metrics" in doubt for doubt in found.doubts)


def test_lmdeploy_behind_a_proxy(tools: Any) -> None:
    routes = {
        ("GET", "/v1/models"): models(tools, "someone"),
        ("GET", "/health"): tools.Answer(200, {"status": "healthy"}),
        ("GET", "/metrics"): tools.Answer(200, "lmdeploy:num_requests_running 0\n"),
    }
    assert with_adapter(tools, routes, capabilities).engine == "lmdeploy"


def test_ollama(tools: Any) -> None:
    running = {"models": [{"name": "m", "model": "m", "size_vram": 5, "context_length": 4096, "expires_at": "x"}]}
    routes = {
        ("GET", "/v1/models"): models(tools, "library"),
        ("GET", "/api/version"): tools.Answer(200, {"version": "0.14.0"}),
        ("GET", "/api/ps"): tools.Answer(200, running),
        ("POST", "/api/show"): tools.Answer(200, {"details": {"quantization_level": "Q4_K_M"}, "parameters": "a b"}),
    }

    async def use(adapter: Any) -> Any:
        return adapter.capabilities, json.loads(adapter.request_body(Wish(prompt="hi", max_tokens=8))[1])

    found, body = with_adapter(tools, routes, use)
    assert (found.version, found.max_context_len, found.has_counters) == ("0.14.0", 4096, "no")
    assert found.settings["quantization_level"] == "Q4_K_M"
    assert any("cut silently" in doubt for doubt in found.doubts)
    assert "ignore_eos" not in body
    del routes["GET", "/api/ps"]
    asleep, _ = with_adapter(tools, routes, use)
    assert asleep.max_context_len is None
    assert any("not loaded yet" in doubt for doubt in asleep.doubts)


def test_tgi(tools: Any) -> None:
    info = {
        "model_id": "m",
        "version": "3.3.0",
        "max_total_tokens": 4096,
        "max_input_tokens": 4000,
        "max_batch_total_tokens": 32_000,
        "max_concurrent_requests": 128,
        "speculate": 3,
    }
    page = "tgi_batch_current_size 1\ntgi_queue_size 0\ntgi_request_skipped_tokens_sum 5\n"

    async def use(adapter: Any) -> Any:
        return adapter.capabilities, await adapter.reading(1.0), await adapter.tokenize("a b")

    routes = {
        ("GET", "/v1/models"): models(tools, "m"),
        ("GET", "/info"): tools.Answer(200, info),
        ("GET", "/metrics"): tools.Answer(200, page),
        ("POST", "/tokenize"): tools.Answer(200, [{"id": 0, "text": "a"}, {"id": 7, "text": " b"}]),
    }
    found, load, ids = with_adapter(tools, routes, use)
    assert (found.version, found.max_context_len, found.max_prompt_len) == ("3.3.0", 4096, 4000)
    assert (found.kv_pool_tokens, found.num_slots, found.speculation) == (32_000, 128, "yes")
    assert (load.num_running, load.num_waiting, load.counters) == (1, 0, {"spec_accepted_tokens": 5.0})
    assert ids == [0, 7]
