"""The SGLang adapter against recorded answers, and its answers in states that were not recorded."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deepdraft.adapters.body import Wish
from deepdraft.adapters.detect import detect
from deepdraft.adapters.flush import FLUSH_LIMIT_S
from deepdraft.adapters.sglang import sglang_capabilities, sglang_load, sglang_mean_acceptance_len, sglang_settings
from deepdraft.records import Capabilities, RequestTrace, ServerReading, Usage

KNOWN = Capabilities(engine="sglang", detected_by="GET /server_info")


def routes(tools: Any, recorded: Any, **info: Any) -> dict[tuple[str, str], Any]:
    server_info = {**recorded.json("sglang-0.5.23/server_info.json"), **info}
    return {
        ("GET", "/v1/models"): tools.Answer(200, recorded.json("sglang-0.5.23/v1_models.json")),
        ("GET", "/server_info"): tools.Answer(200, server_info),
        ("GET", "/metrics"): tools.Answer(200, recorded.text("sglang-0.5.23/metrics.txt")),
    }


def test_capabilities_of_the_recorded_server(tools: Any, recorded: Any) -> None:
    async def work() -> Capabilities:
        async with tools.small_server(routes(tools, recorded)) as (_, client):
            return (await detect(client)).capabilities

    found = tools.run(work())
    assert (found.model, found.tokenizer) == ("tiny", "/models/tiny-llama")
    assert (found.max_context_len, found.kv_pool_tokens, found.max_prompt_len) == (131_072, 4_009_361, 131_066)
    assert (found.page_size, found.num_slots) == (1, 4096)
    assert found.cold_means == ("flush", "cache_salt")
    assert (found.prefix_cache, found.has_counters, found.reports_cached_tokens) == ("yes", "yes", "unknown")
    assert (found.speculation, found.speculation_method) == ("no", None)
    assert found.settings["mem_fraction_static"] == 0.719
    assert found.settings["chunked_prefill_size"] == 4096
    assert found.settings["watermark_key"] == "<redacted>"
    assert "internal_states" not in found.settings


def test_capabilities_of_a_whole_recorded_answer(recorded: Any) -> None:
    info = json.loads(recorded.bytes("sglang-0.5.23/server_info_complete.json"))
    found = sglang_capabilities(KNOWN, info)
    assert (found.version, found.model, found.tokenizer) == ("0.5.23", "tiny-llama", "/models/tiny-llama")
    assert (found.max_context_len, found.kv_pool_tokens, found.max_prompt_len) == (32_768, 60_000, 32_762)
    assert (found.page_size, found.num_slots) == (1, 2048)
    assert (found.prefix_cache, found.has_counters, found.reports_cached_tokens) == ("yes", "yes", "yes")
    assert (found.speculation, found.doubts) == ("no", ())
    assert found.settings["memory_usage"]["token_capacity"] == 60_000
    assert "--chunked-prefill-size 2048" in found.settings["launch_command"]


def test_a_pool_smaller_than_the_context_shows() -> None:
    info = {"max_total_num_tokens": 101_134, "max_req_input_len": 101_128, "context_length": 200_000}
    found = sglang_capabilities(KNOWN, info)
    assert (found.max_context_len, found.kv_pool_tokens, found.max_prompt_len) == (200_000, 101_134, 101_128)
    assert (found.speculation, found.prefix_cache, found.has_counters) == ("unknown", "unknown", "unknown")


def test_a_drafter_and_what_to_mind_with_it() -> None:
    info = {
        "speculative_algorithm": "DFLASH",
        "decode_log_interval": 40,
        "disable_radix_cache": True,
        "enable_metrics": False,
        "enable_cache_report": True,
        "allow_auto_truncate": True,
        "internal_states": [
            {"effective_max_running_requests_per_dp": 8},
            {"effective_max_running_requests_per_dp": 8},
        ],
    }
    found = sglang_capabilities(KNOWN, info)
    assert (found.speculation, found.speculation_method, found.prefix_cache) == ("yes", "DFLASH", "no")
    assert (found.has_counters, found.reports_cached_tokens, found.num_slots) == ("no", "yes", 16)
    for words in ("--enable-metrics", "every 40 decode steps", "--allow-auto-truncate", "2 data parallel ranks"):
        assert any(words in doubt for doubt in found.doubts)


def test_keys_in_the_launch_command_are_hidden() -> None:
    command = "--api-key s3cret --admin-api-key=adm1n --hf-token tok --tokenizer-path /t --max-total-tokens 5"
    settings = sglang_settings({"launch_command": command, "api_key": "s3cret"}, {})
    text = json.dumps(settings)
    assert "s3cret" not in text
    assert "adm1n" not in text
    assert "--hf-token <redacted>" in settings["launch_command"]
    assert settings["launch_command"].endswith("--tokenizer-path /t --max-total-tokens 5")


def test_the_older_path_of_0_5_12(tools: Any, recorded: Any) -> None:
    async def work() -> tuple[Capabilities, str | None, list[str]]:
        old = routes(tools, recorded)
        old["GET", "/get_server_info"] = old.pop(("GET", "/server_info"))
        async with tools.small_server(old) as (server, client):
            adapter = await detect(client)
            return adapter.capabilities, await adapter.health(), server.paths()

    found, health, paths = tools.run(work())
    assert (found.detected_by, health) == ("GET /get_server_info", None)
    assert "/health" not in paths  # it would generate a token


def flushed(tools: Any, recorded: Any, answers: list[Any], **options: Any) -> tuple[Any, list[Any]]:
    async def work() -> tuple[Any, list[Any]]:
        all_routes = routes(tools, recorded)
        all_routes["POST", "/flush_cache"] = lambda _: answers.pop(0) if len(answers) > 1 else answers[0]
        async with tools.small_server(all_routes) as (server, client):
            adapter = await detect(client, **options)
            step = await adapter.flush()
            return step, [asked for asked in server.asked if asked.path == "/flush_cache"]

    result: tuple[Any, list[Any]] = tools.run(work())
    return result


BUSY = "Cache not flushed because there are pending requests. #queue-req: 0, #running-req: 1"
"""0.5.12; newer versions: flush_cache_refused.txt."""


def test_flush(tools: Any, recorded: Any) -> None:
    step, asked = flushed(tools, recorded, [tools.Answer(200, recorded.text("sglang-0.5.23/flush_cache.txt"))])
    assert (step.means, step.is_done, len(asked)) == ("flush", True, 1)
    assert step.evidence == "POST /flush_cache: HTTP 200, Cache flushed."


def test_flush_while_a_request_runs_is_tried_again(tools: Any, recorded: Any) -> None:  # C04
    busy = tools.Answer(400, recorded.text("sglang-0.5.23/flush_cache_refused.txt"))
    done = tools.Answer(200, "Cache flushed.")
    step, asked = flushed(tools, recorded, [busy, busy, done])
    assert (step.is_done, len(asked)) == (True, 3)
    assert "try 3" in step.evidence


def test_flush_that_stays_refused_is_not_done(tools: Any, recorded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepdraft.adapters.flush.FLUSH_LIMIT_S", 0.3)  # C04
    assert FLUSH_LIMIT_S >= 5
    step, asked = flushed(tools, recorded, [tools.Answer(400, BUSY)])
    assert not step.is_done
    assert len(asked) > 1
    assert "HTTP 400, Cache not flushed because there are pending requests" in step.evidence


def test_flush_wants_the_admin_key(tools: Any, recorded: Any) -> None:
    step, _ = flushed(tools, recorded, [tools.Answer(401, {"error": "Unauthorized"})])
    assert not step.is_done
    assert "--admin-key" in step.evidence
    headers = {"authorization": "Bearer adm1n"}
    step, asked = flushed(tools, recorded, [tools.Answer(200, "Cache flushed.")], admin_headers=headers)
    assert step.is_done
    assert asked[0].headers["authorization"] == "Bearer adm1n"
    assert "adm1n" not in step.evidence


def readings(tools: Any, all_routes: Any, **options: Any) -> ServerReading:
    async def work() -> Any:
        async with tools.small_server(all_routes) as (_, client):
            return await (await detect(client, **options)).reading(2.5)

    result: ServerReading = tools.run(work())
    return result


def test_reading_from_metrics(tools: Any, recorded: Any) -> None:
    found = readings(tools, routes(tools, recorded))
    assert (found.at_s, found.source, found.num_running) == (2.5, "/metrics", 0)
    assert found.counters["cached_tokens"] == 8571


def test_reading_from_loads_where_there_are_no_metrics(tools: Any, recorded: Any) -> None:
    all_routes = routes(tools, recorded, enable_metrics=False)
    loads = {"loads": [{"dp_rank": 0, "num_running_reqs": 2, "num_waiting_reqs": 1}, {"num_running_reqs": 1}]}
    loads["loads"][1]["num_waiting_reqs"] = 0
    all_routes["GET", "/v1/loads"] = tools.Answer(200, loads)
    found = readings(tools, all_routes)
    assert (found.source, found.num_running, found.num_waiting, found.counters) == ("/v1/loads", 3, 1, {})


def recorded_load(tools: Any, recorded: Any, name: str) -> ServerReading:
    """A reading where /metrics (recorded idle) and the scheduler's load are both there."""
    all_routes = routes(tools, recorded)
    all_routes["GET", "/v1/loads"] = tools.Answer(200, recorded.json(f"sglang-0.5.23/{name}"))
    return readings(tools, all_routes)


def test_the_schedulers_load_wins_over_gauges_that_lag(tools: Any, recorded: Any) -> None:
    found = recorded_load(tools, recorded, "v1_loads_decode.json")
    assert (found.source, found.num_running, found.num_waiting) == ("/metrics and /v1/loads", 1, 0)
    assert found.counters["cached_tokens"] == 8571
    idle = recorded_load(tools, recorded, "v1_loads_idle.json")
    assert (idle.num_running, idle.num_waiting) == (0, 0)


def test_a_request_in_the_middle_of_its_chunked_prefill_is_running(tools: Any, recorded: Any) -> None:
    load = recorded.json("sglang-0.5.23/v1_loads_chunked_prefill.json")["loads"][0]
    assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (0, 0)
    found = recorded_load(tools, recorded, "v1_loads_chunked_prefill.json")
    assert (found.num_running, found.num_waiting) == (1, 0)


def test_computed_prompt_tokens_are_counted_without_metrics_too(tools: Any, recorded: Any) -> None:
    all_routes = routes(tools, recorded, enable_metrics=False)
    all_routes["GET", "/v1/loads"] = tools.Answer(200, recorded.json("sglang-0.5.23/v1_loads_chunked_prefill.json"))
    assert readings(tools, all_routes).counters == {"uncached_prompt_tokens": 19_025}


def test_reading_of_0_5_12() -> None:
    found = sglang_load([{"dp_rank": 0, "num_reqs": 3, "num_waiting_reqs": 1, "num_tokens": 9}], 0.0, "/get_load")
    assert found is not None
    assert (found.num_running, found.num_waiting) == (2, 1)
    assert sglang_load({"detail": "Not Found"}, 0.0, "/get_load") is None
    assert sglang_load([], 0.0, "/get_load") is None


def test_reading_takes_cached_tokens_from_the_log(tools: Any, recorded: Any, tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text(recorded.text("sglang-0.5.23/server_log_lines.txt"))

    async def work() -> tuple[Any, Any]:
        async with tools.small_server(routes(tools, recorded, enable_metrics=False)) as (_, client):
            adapter = await detect(client, server_log=log)
            before = await adapter.reading(0.0)
            with log.open("a") as file:
                file.write(recorded.text("sglang-0.5.23/server_log_lines.txt"))
            return before, await adapter.reading(1.0)

    before, after = tools.run(work())
    assert before.counters["cached_tokens"] == 0
    assert after.counters["cached_tokens"] == 2
    assert after.counters["prompt_tokens"] == 3844
    assert after.log_position_bytes == 2 * before.log_position_bytes
    assert "server log" in after.source


def test_the_servers_own_mean_is_absent_until_something_was_verified() -> None:
    assert sglang_mean_acceptance_len({"internal_states": [{"last_gen_throughput": 0.0}]}) is None
    assert sglang_mean_acceptance_len({"internal_states": [{"avg_spec_accept_length": 2.0}]}) == 2.0
    assert sglang_mean_acceptance_len(None) is None


SPEC = {"spec_verify_ct": 5, "spec_num_correct_drafts": 10, "spec_num_proposed_drafts": 20}


def with_adapter(tools: Any, recorded: Any, use: Any, **options: Any) -> Any:
    async def work() -> Any:
        info = {"speculative_algorithm": "DFLASH"}
        async with tools.small_server(routes(tools, recorded, **info)) as (_, client):
            return use(await detect(client, **options))

    return tools.run(work())


def test_acceptance_of_one_answer(tools: Any, recorded: Any) -> None:
    openai = RequestTrace(server_fields={"sglext": {"spec_tokens_details": SPEC}}, usage=Usage(completion_tokens=16))
    native = RequestTrace(server_fields={"meta_info": SPEC}, usage=Usage(completion_tokens=16))

    def use(adapter: Any) -> list[Any]:
        return [adapter.acceptance(trace, None, None, is_alone=False) for trace in (openai, native, RequestTrace())]

    first, second, third = with_adapter(tools, recorded, use)
    assert (first.num_steps, first.num_accepted_tokens) == (5, 10)
    assert second == first
    assert third is None


def test_acceptance_where_the_answer_says_nothing(tools: Any, recorded: Any) -> None:  # C52
    def reading(mean: float, **counters: float) -> ServerReading:
        return ServerReading(at_s=0.0, source="/metrics", counters=counters, gauges={"spec_acceptance_len": mean})

    still, moved = reading(2.0), reading(2.2)
    counted = reading(2.2, generation_tokens=16, num_requests=1, spec_drafts=5)

    def use(adapter: Any) -> list[Any]:
        trace = RequestTrace()
        return [
            adapter.acceptance(trace, still, still, is_alone=True),
            adapter.acceptance(trace, still, moved, is_alone=True),
            adapter.acceptance(trace, still, moved, is_alone=False),
            adapter.acceptance(trace, still, counted, is_alone=True),
            adapter.acceptance_between(still, moved),
            adapter.acceptance(trace, replace(still, num_running=1), counted, is_alone=True),
            adapter.acceptance(RequestTrace(usage=Usage(completion_tokens=8)), still, counted, is_alone=True),
        ]

    unmoved, lifetime, not_alone, steps, between, crowded, more_tokens = with_adapter(tools, recorded, use)
    assert unmoved is None
    assert lifetime.is_lifetime_average
    assert "every 40 decode steps" in lifetime.doubt
    assert not_alone is None
    assert (steps.num_steps, steps.num_accepted_tokens, steps.is_lifetime_average) == (5, 10, False)
    assert between == lifetime
    assert crowded is None
    assert more_tokens is None  # 16 tokens were generated, 8 of them ours


def test_acceptance_from_the_log_between_two_looks(tools: Any, recorded: Any, tmp_path: Path) -> None:
    line = "Decode batch, #running-req: 1, #token: 9, token usage: 0.15, accept len: {}, accept rate: 0.00\n"
    log = tmp_path / "server.log"
    log.write_text(line.format("9.00"))
    start = log.stat().st_size
    with log.open("a") as file:
        file.write(line.format("2.50"))
    before = ServerReading(at_s=0.0, source="server log", log_position_bytes=start)
    after = ServerReading(at_s=1.0, source="server log", log_position_bytes=log.stat().st_size)
    found = with_adapter(
        tools,
        recorded,
        lambda adapter: adapter.acceptance(RequestTrace(), before, after, is_alone=True),
        server_log=log,
    )
    assert found.stated_acceptance_len == 2.5


def test_native_bodies(tools: Any, recorded: Any) -> None:
    def use(adapter: Any) -> list[Any]:
        return [
            adapter.request_body(Wish(prompt="hi", max_tokens=8, cache_salt="salt", temperature=0.0, seed=3)),
            adapter.request_body(
                Wish(prompt=[1, 2], max_tokens=8, cache_salt=None, temperature=0.0, seed=None, stop_early=True)
            ),
        ]

    text, ids = with_adapter(tools, recorded, use, endpoint="native", extra_body={"sampling_params": {"top_k": 1}})
    assert text[0] == ids[0] == "/generate"
    sampling = {"max_new_tokens": 8, "temperature": 0.0, "ignore_eos": True, "sampling_seed": 3, "top_k": 1}
    body = json.loads(text[1])
    assert (body["text"], body["sampling_params"], body["stream"]) == ("hi", sampling, True)
    assert json.loads(ids[1]) == {
        "input_ids": [1, 2],
        "sampling_params": {"max_new_tokens": 8, "temperature": 0.0, "top_k": 1},
        "stream": True,
    }


def test_settling_on_the_native_route(tools: Any, recorded: Any) -> None:
    async def work() -> tuple[Any, Any]:
        all_routes = routes(tools, recorded)
        all_routes["POST", "/generate"] = tools.Answer(pieces=(recorded.stream("sglang-0.5.23/generate_stream.sse"),))
        async with tools.small_server(all_routes) as (server, client):
            adapter = await detect(client, endpoint="native")
            await adapter.settle(limit_s=5.0)
            return adapter, server.bodies("/generate")[0]

    adapter, probe = tools.run(work())
    found = adapter.capabilities
    assert (found.endpoints, found.token_id_prompts) == (("native",), "yes")
    assert found.reports_cached_tokens == "yes"
    assert "cache_salt" in found.cold_means
    assert len(probe["extra_key"]) > 4
    _, body = adapter.request_body(Wish(prompt="hi", max_tokens=8, cache_salt="salt"))
    assert json.loads(body)["extra_key"] == "salt"


def test_the_native_route_ignores_eos_and_counts_the_tokens_of_each_event(tools: Any, recorded: Any) -> None:
    async def work() -> Any:
        all_routes = routes(tools, recorded)
        stream = recorded.stream("sglang-0.5.23/generate_stream_two_tokens.sse")
        all_routes["POST", "/generate"] = tools.Answer(pieces=(stream,))
        async with tools.small_server(all_routes) as (_, client):
            adapter = await detect(client, endpoint="native")
            await adapter.settle(limit_s=5.0)
            return adapter, await adapter.probed([1, 2, 3])

    adapter, trace = tools.run(work())
    assert (adapter.capabilities.ignores_eos, adapter.capabilities.continuous_usage) == ("yes", "yes")
    assert (trace.events.num_tokens, trace.events.num_tokens_source) == ((1,) * 8 + (2,), "meta_info")
    assert trace.usage == Usage(prompt_tokens=40, completion_tokens=10, cached_tokens=0, reasoning_tokens=0)
    body = json.loads(adapter.request_body(Wish(prompt=[1], max_tokens=8))[1])
    assert body["sampling_params"]["ignore_eos"] is True


def settled_on_chat(tools: Any, recorded: Any, name: str) -> Any:
    async def work() -> Any:
        all_routes = routes(tools, recorded, enable_cache_report=False)
        # What a server without --enable-cache-report leaves out of its usage.
        stream = recorded.stream(f"sglang-0.5.23/{name}")
        stream = re.sub(rb'"prompt_tokens_details":\{"cached_tokens":\d+\}', b'"prompt_tokens_details":null', stream)
        all_routes["POST", "/v1/chat/completions"] = tools.Answer(pieces=(stream,))
        async with tools.small_server(all_routes) as (_, client):
            adapter = await detect(client, endpoint="chat")
            await adapter.settle(limit_s=5.0)
            return adapter.capabilities, await adapter.probed("hello")

    return tools.run(work())


def test_without_a_cache_report_a_hit_is_told_and_its_absence_is_not(tools: Any, recorded: Any) -> None:
    found, hit = settled_on_chat(tools, recorded, "chat_stream_sglext_hit.sse")
    assert hit.server_fields["sglext"] == {"cached_tokens_details": {"device": 35, "host": 0}}
    assert (found.reports_cached_tokens, found.doubts) == ("yes", ())
    found, cold = settled_on_chat(tools, recorded, "chat_stream_sglext_cold.sse")
    assert "sglext" not in cold.server_fields
    assert cold.usage.cached_tokens is None
    assert found.reports_cached_tokens == "no"
    assert any("--enable-cache-report" in doubt and "only of hits" in doubt for doubt in found.doubts)


def test_openai_bodies_ask_for_what_sglang_can_tell(tools: Any, recorded: Any) -> None:
    def use(adapter: Any) -> Any:
        return adapter.request_body(Wish(prompt="hi", max_tokens=8, cache_salt="salt", temperature=0.0, seed=None))

    body = json.loads(with_adapter(tools, recorded, use)[1])
    assert body["return_spec_tokens_details"] is True
    assert body["return_cached_tokens_details"] is True
    assert (body["cache_salt"], body["ignore_eos"]) == ("salt", True)
    assert "min_tokens" not in body
    kept = json.loads(with_adapter(tools, recorded, use, keep_cache=True)[1])
    assert "cache_salt" not in kept


def test_counting_tokens(tools: Any, recorded: Any) -> None:
    def tokenize(asked: Any) -> Any:
        ids = [5] * len(asked.json["prompt"].split()) + [1] * asked.json["add_special_tokens"]
        return tools.Answer(200, {"tokens": ids, "count": len(ids), "max_model_len": 9})

    async def work() -> list[Any]:
        all_routes = routes(tools, recorded)
        all_routes["POST", "/v1/tokenize"] = tokenize  # as versions without /tokenize have it
        async with tools.small_server(all_routes) as (_, client):
            chat, text = await detect(client), await detect(client, endpoint="completions")
            return [
                await chat.tokenize("a b c"),
                await chat.count_prompt("a b c"),
                await text.count_prompt("a b c"),
            ]

    assert tools.run(work()) == [[5, 5, 5], None, 4]
