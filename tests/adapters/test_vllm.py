"""The vLLM adapter against recorded answers, and its answers in states that were not recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deepdraft.adapters.body import Wish
from deepdraft.adapters.detect import detect
from deepdraft.adapters.prometheus import metrics_page
from deepdraft.adapters.stream import StreamReading
from deepdraft.adapters.vllm import vllm_capabilities
from deepdraft.records import Capabilities, RequestTrace, ServerReading, Usage

KNOWN = Capabilities(engine="vllm", detected_by="owned_by in /v1/models")


def routes(tools: Any, recorded: Any, page: str = "metrics_specdecode_ngram.txt") -> dict[tuple[str, str], Any]:
    return {
        ("GET", "/v1/models"): tools.Answer(200, recorded.json("vllm-0.32.0/models.json")),
        ("GET", "/version"): tools.Answer(200, recorded.json("vllm-0.32.0/version.json")),
        ("GET", "/metrics"): tools.Answer(200, recorded.text(f"vllm-0.32.0/{page}")),
    }


def with_adapter(tools: Any, all_routes: Any, use: Any, **options: Any) -> Any:
    async def work() -> Any:
        async with tools.small_server(all_routes) as (_, client):
            return await use(await detect(client, **options))

    return tools.run(work())


async def capabilities(adapter: Any) -> Capabilities:
    found: Capabilities = adapter.capabilities
    return found


def test_capabilities_without_dev_mode(tools: Any, recorded: Any) -> None:
    found = with_adapter(tools, routes(tools, recorded), capabilities)
    assert (found.version, found.model, found.max_context_len) == ("0.32.0", "smollm2", 8192)
    assert (found.kv_pool_tokens, found.page_size, found.num_slots) == (1_048_576, 128, None)
    assert (found.prefix_cache, found.speculation, found.speculation_method) == ("yes", "yes", None)
    assert (found.cold_means, found.has_counters) == (("cache_salt",), "yes")
    assert found.settings["cache_config"]["gpu_memory_utilization"] == "0.92"
    assert any("VLLM_SERVER_DEV_MODE" in doubt for doubt in found.doubts)


def test_capabilities_in_dev_mode(tools: Any, recorded: Any) -> None:
    all_routes = routes(tools, recorded)
    all_routes["GET", "/server_info"] = tools.Answer(200, recorded.json("vllm-0.32.0/server_info_devmode.json"))
    found = with_adapter(tools, all_routes, capabilities)
    assert found.cold_means == ("flush", "cache_salt")
    assert found.speculation_method == "ngram"
    assert "max_seq_len=65536" in found.settings["vllm_config"]
    assert "vllm_env" not in found.settings


def test_capabilities_from_the_recorded_configuration(recorded: Any) -> None:
    info = recorded.json("vllm-0.32.0/server_info_devmode_config.json")
    found = vllm_capabilities(KNOWN, None, info)
    assert (found.speculation, found.speculation_method, found.num_slots) == ("yes", "ngram", 16)
    assert found.cold_means == ("flush", "cache_salt")
    config = found.settings["vllm_config"]
    assert config["model_config"]["max_model_len"] == 32768
    assert config["speculative_config"]["num_speculative_tokens"] == 4


def test_the_configuration_as_json() -> None:
    config = {"speculative_config": {"method": "eagle3"}, "scheduler_config": {"max_num_seqs": 8}}
    found = vllm_capabilities(KNOWN, None, {"vllm_config": config})
    assert (found.speculation, found.speculation_method, found.num_slots) == ("yes", "eagle3", 8)
    assert found.has_counters == "no"


def test_no_drafter(tools: Any, recorded: Any) -> None:
    found = with_adapter(tools, routes(tools, recorded, "metrics_after_prefix_cache.txt"), capabilities)
    assert found.speculation == "no"


def test_a_pool_that_older_versions_tell_in_blocks() -> None:
    labels = 'block_size="16",num_gpu_blocks="1000",enable_prefix_caching="False",sliding_window="None"'
    text = f'vllm:cache_config_info{{engine="0",{labels}}} 1.0\nvllm:cache_config_info{{engine="1",{labels}}} 1.0\n'
    found = vllm_capabilities(KNOWN, metrics_page(text, ["vllm:cache_config_info"]), None)
    assert (found.kv_pool_tokens, found.page_size, found.prefix_cache) == (16_000, 16, "no")
    assert any("2 data parallel engines" in doubt for doubt in found.doubts)
    assert "sliding_window" not in found.settings["cache_config"]


def trace_of(recorded: Any, name: str) -> RequestTrace:
    """The trace that a recorded stream leaves, with one event a millisecond."""
    stream = StreamReading()
    for index, data in enumerate(recorded.events(name)):
        stream.add_event(1_000 * (index + 1), data)
    return RequestTrace(
        events=stream.event_log(),
        usage=stream.usage(),
        server_fields=stream.figures,
        finish_reason=stream.finish_reason,
    )


DETAILED = [
    (
        "completions_stream_spec_detailed.sse",
        "t" * 21 + "ud",
        (1, 1, 1, 2, 2, 4, 3, 1, 1, 2, 2, 4, 5, 2, 1, 1, 2, 2, 4, 5, 2),
        (14, 35, 30),
        (0, 7, 1, 3, 3),
        3,
    ),
    # The role chunk carries a usage of 0 completion tokens and no text: no token.
    (
        "chat_stream_spec_detailed.sse",
        "o" + "t" * 14 + "ud",
        (1, 1, 1, 2, 2, 4, 5, 5, 5, 5, 5, 5, 5, 2),
        (11, 37, 37),
        (0, 2, 0, 1, 8),
        3,
    ),
]


@pytest.mark.parametrize(("name", "kinds", "tokens", "counts", "histogram", "num_cut"), DETAILED)
def test_detailed_acceptance_of_recorded_streams(
    tools: Any,
    recorded: Any,
    name: str,
    kinds: str,
    tokens: tuple[int, ...],
    counts: tuple[int, int, int],
    histogram: tuple[int, ...],
    num_cut: int,
) -> None:
    trace = trace_of(recorded, f"vllm-0.32.0/{name}")

    async def use(adapter: Any) -> Any:
        return adapter.acceptance(trace, None, None, is_alone=False)

    found = with_adapter(tools, routes(tools, recorded), use)
    assert (trace.events.kinds, trace.events.num_tokens) == (kinds, tokens)
    assert trace.usage is not None
    assert (sum(tokens), trace.usage.completion_tokens, trace.usage.cached_tokens) == (48, 48, 0)
    assert (found.num_steps, found.num_draft_tokens, found.num_accepted_tokens) == counts
    assert found.accepted_len_histogram == histogram
    assert (len(found.accepted_len_by_step), sum(found.accepted_len_by_step)) == (counts[0], counts[2])
    assert found.doubt is None
    # An n-gram drafter finds nothing to draft at some steps, so there are more steps than verify steps; and the last
    # one is cut off by max_tokens, while its drafts all count as accepted.
    num_steps = len(tokens) - 1
    num_committed_drafts = sum(tokens) - 1 - num_steps
    assert num_steps > found.num_steps
    assert found.num_accepted_tokens - num_committed_drafts == num_cut


def test_a_recorded_hit_comes_in_whole_blocks(recorded: Any) -> None:
    trace = trace_of(recorded, "vllm-0.32.0/completions_stream_cached.sse")
    assert trace.usage == Usage(prompt_tokens=900, completion_tokens=16, cached_tokens=7 * 128)


async def flush(adapter: Any) -> Any:
    return await adapter.flush()


def flush_with(tools: Any, recorded: Any, *answers: Any) -> Any:
    left = list(answers)
    all_routes = routes(tools, recorded)
    all_routes["GET", "/server_info"] = tools.Answer(200, {"vllm_config": "x"})
    all_routes["POST", "/reset_prefix_cache"] = lambda _: left.pop(0) if len(left) > 1 else left[0]
    return with_adapter(tools, all_routes, flush)


def test_flush(tools: Any, recorded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepdraft.adapters.flush.FLUSH_LIMIT_S", 0.3)
    done = tools.Answer(200, recorded.json("vllm-0.32.0/reset_prefix_cache.json"))
    held = tools.Answer(200, {"success": False})
    assert flush_with(tools, recorded, done).is_done
    retried = flush_with(tools, recorded, held, done)
    assert retried.is_done
    assert "try 2" in retried.evidence
    refused = flush_with(tools, recorded, held)
    assert not refused.is_done
    assert '{"success": false}' in refused.evidence


def test_flush_of_older_versions_says_only_that_it_was_asked(tools: Any, recorded: Any) -> None:
    step = flush_with(tools, recorded, tools.Answer(200, ""))
    assert step.is_done
    assert step.evidence == "POST /reset_prefix_cache: HTTP 200, no body"


def test_no_flush_without_dev_mode(tools: Any, recorded: Any) -> None:
    assert with_adapter(tools, routes(tools, recorded), flush) is None


def test_reading(tools: Any, recorded: Any) -> None:
    async def use(adapter: Any) -> Any:
        return await adapter.reading(3.0)

    found = with_adapter(tools, routes(tools, recorded), use)
    assert (found.num_running, found.num_waiting, found.counters["spec_drafts"]) == (0, 0, 112)


def test_acceptance_from_the_answer_then_from_counters(tools: Any, recorded: Any) -> None:
    figures = {"num_spec_steps": 8, "num_accepted_draft_tokens": 15, "num_draft_tokens": 32}
    stated = RequestTrace(server_fields={"metrics": {"speculative_decoding": figures}})
    before = ServerReading(at_s=0.0, source="/metrics", counters={"spec_drafts": 0.0})
    counters = {
        "spec_drafts": 8.0,
        "spec_draft_tokens": 32.0,
        "spec_accepted_tokens": 15.0,
        "spec_accepted_at_0": 8.0,
    }
    after = ServerReading(at_s=1.0, source="/metrics", counters=counters)
    wrong = ServerReading(at_s=1.0, source="/metrics", counters={**counters, "spec_accepted_tokens": 30.0})

    async def use(adapter: Any) -> list[Any]:
        return [
            adapter.acceptance(stated, before, after, is_alone=True),
            adapter.acceptance(stated, before, wrong, is_alone=True),
            adapter.acceptance(RequestTrace(), before, after, is_alone=True),
            adapter.acceptance(RequestTrace(), before, after, is_alone=False),
        ]

    best, contradicted, counted, crowded = with_adapter(tools, routes(tools, recorded), use)
    assert "metrics.speculative_decoding" in best.source
    assert (best.num_steps, best.num_accepted_tokens, best.accepted_at_depth) == (8, 15, (8,))
    assert best.doubt is None
    assert "counters of /metrics before and after says 4.75, not 2.88" in contradicted.doubt
    assert (counted.num_steps, counted.num_accepted_tokens) == (8, 15)
    assert crowded is None


def test_counting_tokens(tools: Any, recorded: Any) -> None:
    def tokenize(asked: Any) -> Any:
        body = asked.json
        if "messages" in body:
            assert body["add_generation_prompt"] is True
            return tools.Answer(200, {"count": 40, "max_model_len": 8192, "tokens": [1] * 40})
        ids = [2] * len(body["prompt"].split()) + [1] * body["add_special_tokens"]
        return tools.Answer(200, {"count": len(ids), "max_model_len": 8192, "tokens": ids})

    async def use(adapter: Any) -> Any:
        return await adapter.tokenize("a b"), await adapter.count_prompt("a b")

    all_routes = {**routes(tools, recorded), ("POST", "/tokenize"): tokenize}
    assert with_adapter(tools, all_routes, use) == ([2, 2], 40)
    assert with_adapter(tools, all_routes, use, endpoint="completions") == ([2, 2], 3)


def test_settling_on_recorded_streams(tools: Any, recorded: Any) -> None:
    async def use(adapter: Any) -> Any:
        await adapter.settle(limit_s=5.0)
        return adapter

    all_routes = routes(tools, recorded)
    stream = tools.Answer(pieces=(recorded.stream("vllm-0.32.0/completions_stream_specdecode.sse"),))
    all_routes["POST", "/v1/completions"] = stream
    found = with_adapter(tools, all_routes, use).capabilities
    assert (found.endpoints, found.continuous_usage, found.reports_cached_tokens) == (("completions",), "yes", "yes")
    assert (found.ignores_eos, found.reports_acceptance) == ("yes", "no")
    assert any("--per-request-spec-decode-metrics" in doubt for doubt in found.doubts)
    all_routes["POST", "/v1/completions"] = tools.Answer(
        pieces=(recorded.stream("vllm-0.32.0/completions_stream.sse"),)
    )
    silent = with_adapter(tools, all_routes, use).capabilities
    assert silent.reports_cached_tokens == "no"
    assert any("--enable-prompt-tokens-details" in doubt for doubt in silent.doubts)


def test_bodies(tools: Any, recorded: Any) -> None:
    async def use(adapter: Any) -> Any:
        return adapter.request_body(Wish(prompt="hi", max_tokens=8, cache_salt="salt", temperature=0.0, seed=None))

    body = json.loads(with_adapter(tools, routes(tools, recorded), use)[1])
    assert (body["cache_salt"], body["ignore_eos"]) == ("salt", True)
    assert "min_tokens" not in body  # it would change how tokens are sampled, and some drafters refuse it


def test_a_length_is_forced_another_way_where_ignore_eos_is_refused(tools: Any, recorded: Any) -> None:
    def text(asked: Any) -> Any:
        if "ignore_eos" in asked.json:
            return tools.Answer(400, {"error": {"message": "ignore_eos: Extra inputs are not permitted"}})
        assert asked.json["min_tokens"] == asked.json["max_tokens"]
        events = [{"choices": [{"text": "a"}]}, tools.chat_chunk(None, "length")]
        return tools.Answer(pieces=(tools.sse(*events),))

    async def use(adapter: Any) -> Any:
        await adapter.settle(limit_s=5.0)
        return adapter.capabilities, json.loads(adapter.request_body(Wish(prompt="hi", max_tokens=8))[1])

    all_routes = {**routes(tools, recorded), ("POST", "/v1/completions"): text}
    found, body = with_adapter(tools, all_routes, use, endpoint="completions")
    assert found.ignores_eos == "yes"
    assert body["min_tokens"] == 8
