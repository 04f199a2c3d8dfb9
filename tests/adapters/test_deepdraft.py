"""Our own server's adapter: against a running `deepdraft serve`, and against answers in states it rarely is in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from deepdraft.adapters.acceptance import of_deepdraft_usage
from deepdraft.adapters.acceptance_choice import with_steps_from
from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.body import Wish
from deepdraft.adapters.deepdraft import deepdraft_capabilities
from deepdraft.adapters.detect import detect
from deepdraft.adapters.event import event_facts
from deepdraft.embedded import DeepdraftSpec, EmbeddedServer, running
from deepdraft.records import Acceptance, Capabilities, DraftDecisions, RequestTrace, StepParts
from deepdraft.transport.client import Client
from deepdraft.transport.endpoint import endpoint

KNOWN = Capabilities(engine="deepdraft", detected_by="GET /server_info")
INFO = {
    "engine": "deepdraft",
    "version": "9.8.7",
    "model": "m",
    "model_path": "/models/m",
    "max_context_len": 262_144,
    "kv_pool_tokens": 40_960,
    "page_size": 16,
    "max_running_requests": 4,
    "has_radix_cache": True,
    "speculation": None,
    "state": {"num_running": 3},
}
MODELS = {"object": "list", "data": [{"id": "m", "owned_by": "deepdraft", "max_model_len": 262_144}]}
PAGE = """\
# TYPE deepdraft:num_requests_running gauge
deepdraft:num_requests_running 2.0
# TYPE deepdraft:num_requests_waiting gauge
deepdraft:num_requests_waiting 1.0
# TYPE deepdraft:prompt_tokens_total counter
deepdraft:prompt_tokens_total 1000.0
# TYPE deepdraft:prompt_tokens_cached_total counter
deepdraft:prompt_tokens_cached_total 300.0
# TYPE deepdraft:generation_tokens_total counter
deepdraft:generation_tokens_total 70.0
# TYPE deepdraft:request_success_total counter
deepdraft:request_success_total{finish_reason="length"} 5.0
deepdraft:request_success_total{finish_reason="stop"} 2.0
# TYPE deepdraft:kv_cache_usage_perc gauge
deepdraft:kv_cache_usage_perc 0.25
"""


class TestAnswers:
    """What its routes say, without a server."""

    def with_adapter(self, tools: Any, use: Callable[[Adapter], Awaitable[Any]], **routes: Any) -> Any:
        answers = {
            ("GET", "/v1/models"): tools.Answer(200, MODELS),
            ("GET", "/server_info"): tools.Answer(200, INFO),
            ("GET", "/metrics"): tools.Answer(200, PAGE),
        }
        answers |= {("POST", f"/{path}"): answer for path, answer in routes.items()}

        async def work() -> Any:
            async with tools.small_server(answers) as (_, client):
                return await use(await detect(client))

        return tools.run(work())

    def test_it_is_known_by_the_engine_it_names(self, tools: Any) -> None:
        async def use(adapter: Adapter) -> Capabilities:
            return adapter.capabilities

        found = self.with_adapter(tools, use)
        assert (found.engine, found.version, found.detected_by) == ("deepdraft", "9.8.7", "GET /server_info")
        assert (found.max_context_len, found.kv_pool_tokens, found.max_prompt_len) == (262_144, 40_960, None)
        assert (found.page_size, found.num_slots, found.tokenizer) == (16, 4, "/models/m")
        assert (found.prefix_cache, found.cold_means, found.has_counters) == ("yes", ("flush",), "yes")
        assert found.doubts == ()

    def test_counters_and_load(self, tools: Any) -> None:
        async def use(adapter: Adapter) -> Any:
            return await adapter.reading(1.0)

        load = self.with_adapter(tools, use)
        assert (load.num_running, load.num_waiting) == (2, 1)
        assert load.counters == {
            "prompt_tokens": 1000,
            "cached_tokens": 300,
            "generation_tokens": 70,
            "num_requests": 7,
        }
        assert load.gauges == {"kv_used_frac": 0.25}

    def test_a_refused_flush_is_tried_again(self, tools: Any) -> None:
        answers = [tools.Answer(400, {"error": {"message": "2 requests are open"}}), tools.Answer(200, {})]

        async def use(adapter: Adapter) -> Any:
            return await adapter.flush()

        step = self.with_adapter(tools, use, flush_cache=lambda asked: answers.pop(0))
        assert (step.means, step.is_done) == ("flush", True)
        assert "try 2" in step.evidence
        assert answers == []

    @pytest.mark.parametrize("other", [{**INFO, "engine": "another"}, {"engine": None}, [], "deepdraft"])
    def test_another_server_info_is_another_engine(self, tools: Any, other: Any) -> None:
        answers = {
            ("GET", "/v1/models"): tools.Answer(200, {"data": [{"id": "m", "owned_by": "someone"}]}),
            ("GET", "/server_info"): tools.Answer(200, other),
        }

        async def work() -> str:
            async with tools.small_server(answers) as (_, client):
                return (await detect(client)).capabilities.engine

        assert tools.run(work()) == "openai"

    def test_what_is_not_said_is_unknown(self) -> None:
        found = deepdraft_capabilities(KNOWN, {"engine": "deepdraft"})
        assert (found.max_context_len, found.kv_pool_tokens, found.page_size, found.num_slots) == (None,) * 4
        assert (found.prefix_cache, found.speculation, found.speculation_method) == ("unknown", "unknown", None)
        assert (found.version, found.model, found.tokenizer) == (None, None, None)

    def test_settings_are_what_does_not_change(self) -> None:
        found = deepdraft_capabilities(KNOWN, INFO)
        assert "state" not in found.settings
        assert found.settings["has_radix_cache"] is True

    @pytest.mark.parametrize(
        ("stated", "speculation", "method"),
        [
            (None, "no", None),
            ({"method": "dflash", "tree_budget": 16}, "yes", "dflash"),
            ({"method": "dflash", "tree_budget": 16, "tree_top_k": 8, "draft_len": 7}, "yes", "dflash tree of 16"),
            ({"method": "dflash", "tree_budget": 16, "tree_top_k": 1, "draft_len": 7}, "yes", "dflash chain of 7"),
            ({"method": "dflash", "tree_budget": 4, "tree_top_k": 1, "draft_len": 7}, "yes", "dflash chain of 4"),
            ({"method": "ngram", "tree_budget": 16, "tree_top_k": 1, "draft_len": 8}, "yes", "ngram"),
            ({"method": "dflash", "tree_budget": 9, "tree_top_k": 2, "mode": "always"}, "yes", "dflash tree of 9"),
            (
                {"method": "dflash", "tree_budget": 9, "tree_top_k": 2, "mode": "auto"},
                "yes",
                "dflash tree of 9 where it pays",
            ),
            ({"method": "ngram", "mode": "never"}, "yes", "ngram, never used"),
            ({"tree_budget": 16}, "yes", None),
        ],
    )
    def test_a_drafter(self, stated: Any, speculation: str, method: str | None) -> None:
        found = deepdraft_capabilities(KNOWN, {**INFO, "speculation": stated})
        assert (found.speculation, found.speculation_method) == (speculation, method)

    @pytest.mark.parametrize(
        ("stated", "simulates"),
        [
            (None, "no"),
            ({"method": "dflash"}, "unknown"),
            ({"method": "dflash", "simulate_acceptance_len": None}, "no"),
            ({"method": "dflash", "simulate_acceptance_len": 2.5}, "yes"),
        ],
    )
    def test_simulated_acceptance_is_a_doubt(self, stated: Any, simulates: str) -> None:
        found = deepdraft_capabilities(KNOWN, {**INFO, "speculation": stated})
        assert found.simulates_acceptance == simulates
        assert [("simulate-acceptance-len 2.5" in doubt) for doubt in found.doubts] == [True] * (simulates == "yes")

    def test_a_server_without_a_radix_cache(self) -> None:
        assert deepdraft_capabilities(KNOWN, {**INFO, "has_radix_cache": False}).prefix_cache == "no"


DRAFTED = {
    "num_rounds": 6,
    "num_draft_tokens": 60,
    "accepted_len_histogram": [2, 1, 0, 3],
    "draft_s": 0.006,
    "build_s": 0.001,
    "verify_s": 0.05,
    "compact_s": 0,
    "other_s": 0.003,
    "is_simulated": False,
}


class TestUsageOfDrafting:
    """usage.speculation: counts, a histogram, seconds."""

    def test_all_of_it_is_read(self) -> None:
        found = of_deepdraft_usage(DRAFTED)
        assert found is not None and found.doubt is None
        assert (found.num_steps, found.num_draft_tokens, found.num_accepted_tokens) == (6, 60, 10)
        assert found.accepted_len_histogram == (2, 1, 0, 3)
        assert found.is_simulated is False
        assert found.parts == StepParts(draft_s=0.006, build_s=0.001, verify_s=0.05, compact_s=0.0, other_s=0.003)

    def test_why_it_drafted_or_not(self) -> None:
        said = {
            "rounds_by_reason": {"pays": 5, "probe": 1},
            "plain_steps_by_reason": {"below_break_even": 40},
            "break_even_len": 4.5,
            "expected_len": 2.25,
        }
        found = of_deepdraft_usage(DRAFTED | said)
        assert found is not None and found.decisions == DraftDecisions(**said)
        for nothing in ({}, {"rounds_by_reason": {}, "plain_steps_by_reason": {}}, {"rounds_by_reason": [1]}):
            found = of_deepdraft_usage(DRAFTED | nothing)
            assert found is not None and found.decisions is None
        odd = of_deepdraft_usage(DRAFTED | {"rounds_by_reason": {"pays": -1, "probe": 2}, "break_even_len": None})
        assert odd is not None and odd.decisions == DraftDecisions(rounds_by_reason={"probe": 2})

    @pytest.mark.parametrize("lacking", ["num_rounds", "accepted_len_histogram"])
    def test_without_counts_it_tells_nothing(self, lacking: str) -> None:
        assert of_deepdraft_usage({name: value for name, value in DRAFTED.items() if name != lacking}) is None

    def test_what_is_not_said_is_none(self) -> None:
        found = of_deepdraft_usage({"num_rounds": 1, "accepted_len_histogram": [1], "draft_s": True, "build_s": -1})
        assert found is not None
        assert (found.is_simulated, found.parts, found.num_draft_tokens) == (None, None, None)

    def test_an_answer_without_a_round_has_counts_and_no_mean(self) -> None:
        found = of_deepdraft_usage({"num_rounds": 0, "num_draft_tokens": 0, "accepted_len_histogram": []})
        assert found is not None
        assert (found.num_steps, found.num_accepted_tokens, found.stated_acceptance_len) == (0, 0, None)

    def test_a_histogram_of_other_rounds_is_a_doubt(self) -> None:
        found = of_deepdraft_usage({**DRAFTED, "num_rounds": 9})
        assert found is not None and found.doubt == "the histogram counts 6 rounds, the total 9"

    def test_counters_that_say_the_same_add_nothing(self) -> None:
        found = of_deepdraft_usage(DRAFTED)
        assert found is not None
        counted = Acceptance(source="counters", num_steps=6, num_draft_tokens=60, num_accepted_tokens=10)
        assert with_steps_from(found, counted) is found

    def test_it_comes_out_of_a_stream(self) -> None:
        usage = {"completion_tokens": 17, "speculation": DRAFTED}
        facts = event_facts(json.dumps({"choices": [], "usage": usage}).encode())
        assert (facts.kind, facts.usage_tokens, facts.figures) == ("u", 17, {"speculation": DRAFTED})


@pytest.fixture(scope="module")
def server(tiny_model: Path) -> Iterator[EmbeddedServer]:
    """A running `deepdraft serve`: 4,096 tokens of context, and a pool for two such requests."""
    spec = DeepdraftSpec(model=str(tiny_model), context_len=4_096, num_slots=2, num_threads=1)
    with running(spec) as one:
        yield one


async def measured(adapter: Adapter, prompt: Any, max_tokens: int = 8) -> RequestTrace:
    path, body = adapter.request_body(Wish(prompt=prompt, max_tokens=max_tokens))
    trace, failure = await adapter.server.generate(path, body, limit_s=30.0)
    assert failure is None
    return trace


def prompt_of(adapter: Adapter, num_words: int = 200) -> str:
    """A prompt that begins like no other."""
    return f"{adapter.probe_prompt()} " + " ".join(f"word{index}" for index in range(num_words))


class TestServer:
    """A server in another process."""

    @pytest.fixture
    def talk(self, tools: Any, server: EmbeddedServer) -> Callable[..., Any]:
        def with_adapter(use: Callable[[Adapter], Awaitable[Any]], **options: Any) -> Any:
            async def work() -> Any:
                async with Client(endpoint(server.url)) as client:
                    adapter = await detect(client, **options)
                    await adapter.settle(limit_s=30.0)
                    return await use(adapter)

            return tools.run(work())

        return with_adapter

    def test_what_it_is_and_can_tell(self, talk: Callable[..., Any]) -> None:
        async def use(adapter: Adapter) -> Capabilities:
            assert await adapter.health() is None
            return adapter.capabilities

        found = talk(use)
        assert (found.engine, found.detected_by, found.model) == ("deepdraft", "GET /server_info", "tiny-random")
        assert found.version is not None
        assert (found.max_context_len, found.kv_pool_tokens, found.num_slots) == (4_096, 8_192, 2)
        assert found.page_size is not None and found.kv_pool_tokens % found.page_size == 0
        assert found.endpoints == ("chat", "completions")
        assert (found.prefix_cache, found.cold_means) == ("yes", ("flush",))
        assert (found.reports_cached_tokens, found.continuous_usage, found.token_id_prompts) == ("yes",) * 3
        assert (found.ignores_eos, found.tokenizes, found.has_counters) == ("yes",) * 3
        assert (found.speculation, found.reports_acceptance) == ("no", "no")
        assert found.doubts == ()
        assert found.settings["attention_backend"]

    def test_answers_are_as_long_as_asked_and_every_event_tells_its_tokens(self, talk: Callable[..., Any]) -> None:
        async def use(adapter: Adapter) -> list[RequestTrace]:
            traces = []
            for route in adapter.capabilities.endpoints:
                adapter.use(route)
                traces.append(await measured(adapter, prompt_of(adapter), max_tokens=25))
            return traces

        for trace in talk(use):
            assert trace.usage.completion_tokens == 25
            assert trace.events.num_tokens_source == "continuous usage"
            assert sum(trace.events.num_tokens) == 25
            assert trace.finish_reason == "length"
            assert trace.saw_done

    def test_prompts_are_counted_as_they_will_be(self, talk: Callable[..., Any]) -> None:
        async def use(adapter: Adapter) -> list[tuple[int | None, int | None]]:
            pairs = []
            for route in ("chat", "completions"):
                adapter.use(route)
                prompt = prompt_of(adapter)
                counted = await adapter.count_prompt(prompt)
                trace = await measured(adapter, prompt)
                pairs.append((counted, trace.usage.prompt_tokens if trace.usage else None))
            return pairs

        (chat, completions) = talk(use)
        assert chat[0] == chat[1] and completions[0] == completions[1]
        assert chat[0] > 200

    def test_token_ids_are_taken_as_they_are(self, talk: Callable[..., Any]) -> None:
        async def use(adapter: Adapter) -> tuple[list[int] | None, RequestTrace]:
            adapter.use("completions")
            ids = await adapter.tokenize(prompt_of(adapter))
            return ids, await measured(adapter, ids)

        ids, trace = talk(use)
        assert trace.usage.prompt_tokens == len(ids)

    def test_cached_tokens_are_always_told(self, talk: Callable[..., Any]) -> None:
        async def use(adapter: Adapter) -> list[int | None]:
            prompt = prompt_of(adapter)
            counts = []
            for flushes in (False, False, True):
                if flushes:
                    step = await adapter.flush()
                    assert step is not None and step.is_done
                usage = (await measured(adapter, prompt)).usage
                counts.append(None if usage is None else usage.cached_tokens)
            return counts

        first, again, after_flush = talk(use)
        assert (first, after_flush) == (0, 0)
        assert again > 200

    def test_counters_move_by_what_was_sent(self, talk: Callable[..., Any]) -> None:
        async def use(adapter: Adapter) -> tuple[dict[str, float], list[RequestTrace]]:
            prompt = prompt_of(adapter)
            before = await adapter.reading(0.0)
            traces = [await measured(adapter, prompt) for _ in range(2)]
            after = await adapter.reading(1.0)
            assert before is not None and after is not None
            assert (after.num_running, after.num_waiting) == (0, 0)
            return {name: after.counters[name] - before.counters[name] for name in after.counters}, traces

        moved, traces = talk(use)
        assert moved["num_requests"] == 2
        assert moved["generation_tokens"] == 16
        assert moved["prompt_tokens"] == sum(trace.usage.prompt_tokens for trace in traces)
        assert moved["cached_tokens"] == traces[1].usage.cached_tokens

    def test_a_flush_waits_for_what_runs(self, talk: Callable[..., Any]) -> None:
        async def use(adapter: Adapter) -> Any:
            running_one = asyncio.create_task(measured(adapter, prompt_of(adapter), max_tokens=100))
            while (load := await adapter.reading(0.0)) is None or not load.num_running:
                await asyncio.sleep(0.01)
            refused = await adapter.server.try_post("/flush_cache", None)
            step = await adapter.flush()
            await running_one
            return refused, step

        refused, step = talk(use)
        assert refused.status == 400
        assert step.is_done

    @pytest.mark.parametrize("max_tokens", [1, 4_000])
    def test_a_request_beyond_the_limit_is_refused_in_its_own_words(
        self, talk: Callable[..., Any], max_tokens: int
    ) -> None:
        async def use(adapter: Adapter) -> Any:
            adapter.use("completions")
            path, body = adapter.request_body(Wish(prompt=[400] * (4_097 - max_tokens), max_tokens=max_tokens))
            return await adapter.server.generate(path, body, limit_s=30.0)

        _, failure = talk(use)
        assert failure.http_status == 400
        assert "4096" in failure.message.replace(",", "")
