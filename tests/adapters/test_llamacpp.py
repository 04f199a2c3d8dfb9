"""The llama.cpp adapter against recorded answers, and its answers in states that were not recorded."""

from __future__ import annotations

import json
from typing import Any

from deepdraft.adapters.body import Wish
from deepdraft.adapters.detect import detect
from deepdraft.adapters.llamacpp import llamacpp_capabilities, llamacpp_load
from deepdraft.records import Capabilities, RequestTrace, ServerReading

KNOWN = Capabilities(engine="llamacpp", detected_by="GET /props")


def routes(tools: Any, recorded: Any) -> dict[tuple[str, str], Any]:
    folder = "llama.cpp-2026-10"
    return {
        ("GET", "/v1/models"): tools.Answer(200, recorded.json(f"{folder}/models.json")),
        ("GET", "/props"): tools.Answer(200, recorded.json(f"{folder}/props.json")),
        ("GET", "/metrics"): tools.Answer(200, recorded.text(f"{folder}/metrics_idle.txt")),
        ("GET", "/slots"): tools.Answer(200, recorded.json(f"{folder}/slots_busy_decode.json")),
        ("POST", "/v1/chat/completions"): tools.Answer(pieces=(recorded.stream(f"{folder}/chat_stream.sse"),)),
        ("POST", "/v1/completions"): tools.Answer(
            pieces=(recorded.stream(f"{folder}/completions_stream_progress_timings.sse"),)
        ),
    }


def with_adapter(tools: Any, all_routes: Any, use: Any, **options: Any) -> Any:
    async def work() -> Any:
        async with tools.small_server(all_routes) as (_, client):
            return await use(await detect(client, **options))

    return tools.run(work())


def test_capabilities(tools: Any, recorded: Any) -> None:
    async def use(adapter: Any) -> Any:
        return adapter.capabilities

    found = with_adapter(tools, routes(tools, recorded), use)
    assert (found.version, found.model) == ("b0-unknown", "smollm2-135m")
    assert (found.max_context_len, found.num_slots) == (4096, 2)  # of one slot: -c 8192 over two
    assert found.kv_pool_tokens is None
    assert any("2 slots share one KV cache" in doubt for doubt in found.doubts)
    assert (found.cold_means, found.has_counters, found.speculation) == (("cache_prompt",), "yes", "no")
    assert found.settings["model_meta"]["n_ctx_train"] == 8192
    assert "chat_template" not in found.settings


def test_a_drafter_and_one_slot() -> None:
    props = {
        "default_generation_settings": {"n_ctx": 8192, "params": {"speculative.types": "draft-simple"}},
        "total_slots": 1,
        "is_sleeping": True,
    }
    found = llamacpp_capabilities(KNOWN, props, {})
    assert (found.kv_pool_tokens, found.speculation, found.speculation_method) == (8192, "yes", "draft-simple")
    assert any("sleeps" in doubt for doubt in found.doubts)


def test_without_props_and_metrics(tools: Any, recorded: Any) -> None:
    async def use(adapter: Any) -> Any:
        return adapter.capabilities, await adapter.reading(1.0)

    all_routes = routes(tools, recorded)
    del all_routes["GET", "/props"]
    all_routes["GET", "/metrics"] = tools.Answer(
        501, {"error": {"code": 501, "message": "This server does not support metrics endpoint.", "type": "x"}}
    )
    found, load = with_adapter(tools, all_routes, use)
    assert (found.detected_by, found.max_context_len) == ("owned_by in /v1/models", 4096)
    assert (found.has_counters, found.speculation) == ("no", "unknown")
    assert (load.source, load.num_running, load.counters) == ("/slots", 2, {})


def test_load_of_slots(recorded: Any) -> None:
    idle = llamacpp_load(recorded.json("llama.cpp-2026-10/slots_idle.json"), 0.0)
    busy = llamacpp_load(recorded.json("llama.cpp-2026-10/slots_busy_prefill.json"), 0.0)
    assert idle is not None
    assert busy is not None
    assert (idle.num_running, busy.num_running) == (0, 1)
    assert llamacpp_load({"error": {"message": "This server does not support slots endpoint."}}, 0.0) is None


def test_settling_and_bodies(tools: Any, recorded: Any) -> None:
    async def use(adapter: Any) -> Any:
        await adapter.settle(limit_s=5.0)
        chat = json.loads(
            adapter.request_body(Wish(prompt="hi", max_tokens=8, cache_salt="salt", stop_early=True))[1]
        )
        adapter.use("completions")
        return adapter.capabilities, chat, json.loads(adapter.request_body(Wish(prompt=[1], max_tokens=8))[1])

    found, chat, text = with_adapter(tools, routes(tools, recorded), use)
    assert found.endpoints == ("chat", "completions")
    assert (found.reports_cached_tokens, found.reports_acceptance, found.ignores_eos) == ("yes", "no", "yes")
    assert found.continuous_usage == "no"
    assert chat["cache_prompt"] is False
    assert "cache_salt" not in chat
    assert "ignore_eos" not in chat
    assert (text["cache_prompt"], text["ignore_eos"], text["timings_per_token"], text["return_progress"]) == (
        False,
        True,
        True,
        True,
    )


def test_the_cache_is_left_on_when_it_is_what_is_studied(tools: Any, recorded: Any) -> None:
    async def use(adapter: Any) -> Any:
        return json.loads(adapter.request_body(Wish(prompt="hi", max_tokens=8))[1])

    assert "cache_prompt" not in with_adapter(tools, routes(tools, recorded), use, keep_cache=True)


def test_no_flush_is_claimed(tools: Any, recorded: Any) -> None:
    async def use(adapter: Any) -> Any:
        return await adapter.flush()

    all_routes = routes(tools, recorded)
    all_routes["POST", "/slots/0"] = tools.Answer(200, {"id_slot": 0, "n_erased": 9})
    assert with_adapter(tools, all_routes, use) is None  # the cache in host memory outlives an erased slot


def test_acceptance(tools: Any, recorded: Any) -> None:
    timings = {"predicted_n": 64, "draft_n": 90, "draft_n_accepted": 40}
    trace = RequestTrace(server_fields={"timings": timings})
    before = ServerReading(at_s=0.0, source="/metrics", counters={"spec_drafts": 0.0})
    counters = {
        "spec_drafts": 22.0,
        "spec_draft_tokens": 90.0,
        "spec_accepted_tokens": 40.0,
        "spec_accepted_at_0": 18.0,
    }
    after = ServerReading(at_s=1.0, source="/metrics", counters=counters)

    async def use(adapter: Any) -> Any:
        return [
            adapter.acceptance(trace, None, None, is_alone=True),
            adapter.acceptance(trace, before, after, is_alone=True),
            adapter.acceptance(RequestTrace(), before, before, is_alone=True),
        ]

    alone, completed, nothing = with_adapter(tools, routes(tools, recorded), use)
    assert (alone.num_steps, alone.num_draft_tokens, alone.num_accepted_tokens) == (23, 90, 40)
    assert (completed.num_steps, completed.accepted_at_depth) == (22, (18,))
    assert nothing is None


def test_counting_tokens(tools: Any, recorded: Any) -> None:
    def template(asked: Any) -> Any:
        return tools.Answer(200, {"prompt": f"<start> {asked.json['messages'][0]['content']} <end>"})

    def tokenize(asked: Any) -> Any:
        body = asked.json
        assert body["parse_special"] is True
        return tools.Answer(200, {"tokens": [3] * (len(body["content"].split()) + body["add_special"])})

    async def use(adapter: Any) -> Any:
        return await adapter.tokenize("a b"), await adapter.count_prompt("a b")

    all_routes = {
        **routes(tools, recorded),
        ("POST", "/apply-template"): template,
        ("POST", "/tokenize"): tokenize,
    }
    assert with_adapter(tools, all_routes, use) == ([3, 3], 5)
    assert with_adapter(tools, all_routes, use, endpoint="completions") == ([3, 3], 3)
    del all_routes["POST", "/apply-template"]
    assert with_adapter(tools, all_routes, use) == ([3, 3], None)
