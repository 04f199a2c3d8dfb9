"""Sweeps against a real SGLang: its radix cache, its native route, and what it tells of its load."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.body import Wish
from deepdraft.errors import RequestFailed
from deepdraft.records import RequestTrace, ServerReading

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

SIZES = ("--context-len", "512,2k,4k", "--decode-len", "32", "--repeats", "3")
LENS = [512, 2000, 4000]


@pytest.fixture(scope="module")
def engine(start: Any) -> Iterator[Any]:
    with start("sglang") as running:
        yield running


def random_ids(num_ids: int) -> list[int]:
    return [random.randrange(300, 40_000) for _ in range(num_ids)]


def assert_sound(sweep: Any, source: str) -> None:
    """Every point was measured, with exact counts, cold, and alone."""
    assert sweep.exit_code == 0
    assert [point["context_len"] for point in sweep.points] == LENS
    for request in sweep.requests:
        assert request.failure is None
        assert request.trace.usage.prompt_tokens == request.prompt.asked_len == request.prompt.expected_len
        assert request.trace.usage.completion_tokens == request.max_tokens == 32
        assert request.trace.usage.cached_tokens == 0
        # Under load SGLang sends two tokens in one chunk; their number is stated all the same.
        assert sum(request.trace.events.num_tokens) == 32
        assert request.trace.events.num_tokens_source == source
    for name in ("cold_prefix", "prompt_len", "truncation", "early_stop", "bundled_tokens", "background_load"):
        assert sweep.states(name) == {"verified"}, sweep.guard(name)
    assert {evidence for _, evidence in sweep.guard("cold_prefix")} == {"0 cached tokens in each of 3 answers"}
    flushes = [step for trial in sweep.trials for step in trial.cold_steps if step.means == "flush"]
    assert len(flushes) == 9
    assert all(step.is_done and "HTTP 200, Cache flushed." in step.evidence for step in flushes)
    assert all(point["tokens_per_step"]["median"] == 1 for point in sweep.points)  # no drafter is active
    assert all(point["acceptance_len"] is None for point in sweep.points)


def test_what_the_server_is(engine: Any) -> None:
    found = engine.servers()
    said = engine.get("/server_info")
    assert found["engine"] == f"sglang {said['version']} (GET /server_info)"
    assert found["model"] == "tiny-llama"
    assert found["context limit"] == "32,768 tokens"
    assert found["KV pool"] == f"{said['max_total_num_tokens']:,} tokens, page size {said['page_size']}"
    assert said["max_total_num_tokens"] == 60_000
    assert found["hard limit"] == f"{said['max_req_input_len']:,} tokens"
    assert found["made cold by"] == "unique head, flush, cache_salt"
    assert (found["speculation"], found["reports acceptance"]) == ("no", "no")
    for name in ("prefix cache", "reports cached tokens", "continuous usage", "counters"):
        assert found[name] == "yes"
    for name in ("token-id prompts", "ignores EOS on demand", "tokenize endpoint"):
        assert found[name] == "yes"
    assert "note" not in found


def test_what_the_native_route_is(engine: Any) -> None:
    found = engine.servers("--endpoint", "native")
    assert found["endpoints"] == "native"
    for name in ("reports cached tokens", "continuous usage", "token-id prompts", "ignores EOS on demand"):
        assert found[name] == "yes"


def test_settings_are_whole_and_hold_no_secret(engine: Any) -> None:
    done = engine.command("servers", engine.url, "--json")
    settings = json.loads(done.stdout)["settings"]
    assert settings["chunked_prefill_size"] == 2048
    assert len(settings) > 300
    assert settings.get("api_key") in (None, "<redacted>")


def test_a_sweep_on_the_chat_route_is_cold_exact_and_alone(engine: Any) -> None:
    sweep = engine.sweep(*SIZES)
    assert_sound(sweep, "continuous usage")
    assert {request.prompt.form for request in sweep.requests} == {"text"}
    assert sweep.requests[0].trace.events.kinds.startswith("ot")  # the role chunk is no token


def test_a_sweep_on_the_native_route(engine: Any) -> None:
    sweep = engine.sweep(*SIZES, "--endpoint", "native")
    assert_sound(sweep, "meta_info")
    assert {request.prompt.form for request in sweep.requests} == {"ids"}
    assert {request.prompt.count_source for request in sweep.requests} == {"token ids"}
    assert all(point["server_prefill_s"]["num_samples"] == 3 for point in sweep.points)


def test_token_ids_on_the_completions_route(engine: Any) -> None:
    sweep = engine.sweep("--context-len", "512,2k,4k", "--decode-len", "32", "--endpoint", "completions")
    assert_sound(sweep, "continuous usage")
    assert {request.prompt.form for request in sweep.requests} == {"ids"}


def test_two_point(engine: Any) -> None:
    sweep = engine.sweep("--context-len", "512,2k", "--repeats", "3", "--method", "two-point")
    assert sweep.exit_code == 0
    counts = [request.trace.usage.completion_tokens for request in sweep.requests]
    assert counts == [1, 17] * 6
    assert {request.trace.usage.cached_tokens for request in sweep.requests} == {0}
    assert sweep.states("cold_prefix") == sweep.states("background_load") == {"verified"}


def test_a_kept_cache_makes_the_guard_speak(engine: Any) -> None:
    sweep = engine.sweep(*SIZES, "--keep-cache", "--strict")
    assert sweep.exit_code == 6
    for length, (state, evidence) in zip(LENS, sweep.guard("cold_prefix"), strict=True):
        assert state == "violated"  # page size 1: all but the last token
        assert evidence.startswith(f"2 of 3 requests were served from a cache: up to {length - 1:,} of {length:,}")


def test_a_point_above_the_limit_is_not_sent(engine: Any) -> None:
    sweep = engine.sweep("--context-len", "512,32765,40k", "--decode-len", "2", "--repeats", "1")
    assert sweep.exit_code == 1
    reasons = {refusal["context_len"]: refusal["reason"] for refusal in sweep.facts["refusals"]}
    assert reasons == {
        32_765: "32,765 prompt tokens exceed the 32,762 this server accepts",
        40_000: "40,000 prompt + 2 output tokens exceed the server's context limit of 32,768",
    }
    assert [point["context_len"] for point in sweep.points] == [512]


def test_a_prompt_too_long_is_a_failure_in_the_servers_words(engine: Any) -> None:
    async def use(adapter: Adapter) -> str:
        with pytest.raises(RequestFailed) as failed:
            await adapter.probed(random_ids(40_000))
        return failed.value.message

    assert "(40000 tokens) is longer than the model's context length" in engine.ask(use, endpoint="native")
    assert "(40000 tokens) is longer than the model's context length" in engine.ask(use, endpoint="completions")


def test_the_flush_empties_the_cache_and_the_load_counts_what_was_computed(engine: Any) -> None:
    prompt = random_ids(900)

    async def use(adapter: Adapter) -> tuple[list[RequestTrace], list[float]]:
        traces: list[RequestTrace] = []
        computed = [await _computed(adapter)]
        for is_flushed in (False, False, True):
            if is_flushed:
                step = await adapter.flush()
                assert step is not None
                assert step.is_done, step.evidence
            traces.append(await adapter.probed(prompt))
            computed.append(await _computed(adapter, more_than=computed[-1]))
        return traces, computed

    traces, computed = engine.ask(use, endpoint="native", keep_cache=True)
    assert [trace.usage.cached_tokens for trace in traces if trace.usage is not None] == [0, 899, 0]
    assert [later - earlier for earlier, later in pairwise(computed)] == [900, 1, 900]


async def _computed(adapter: Adapter, more_than: float = -1.0) -> float:
    """Prompt tokens the scheduler computed so far, once they passed a mark."""
    deadline = time.monotonic() + 5
    while True:
        reading = await adapter.reading(0.0)
        assert reading is not None
        value = reading.counters["uncached_prompt_tokens"]
        if value > more_than or time.monotonic() > deadline:
            return value
        await asyncio.sleep(0.05)


def test_a_running_request_shows_and_holds_off_the_flush(engine: Any) -> None:
    async def use(adapter: Adapter) -> tuple[list[ServerReading], Any, Any]:
        path, body = adapter.request_body(Wish(prompt=random_ids(6_000), max_tokens=60))
        running = asyncio.create_task(adapter.server.generate(path, body, limit_s=120))
        looks: list[ServerReading] = []
        while not running.done() and not any(look.num_running for look in looks):
            look = await adapter.reading(0.0)
            assert look is not None
            looks.append(look)
            await asyncio.sleep(0.05)
        step = await adapter.flush()
        trace, failure = await running
        assert failure is None
        idle = await adapter.reading(0.0)
        assert idle is not None
        return looks, step, (trace, idle)

    looks, step, (trace, idle) = engine.ask(use, endpoint="native")
    assert looks[-1].num_running == 1
    assert (idle.num_running, idle.num_waiting) == (0, 0)
    assert trace.usage.completion_tokens == 60
    # Refused while it ran: done only at a later try, or not at all.
    assert "try" in step.evidence or not step.is_done
