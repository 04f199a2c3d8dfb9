"""Adapters against the server of known truth, in every dialect it speaks: what they read is what happened."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.body import Wish
from deepdraft.adapters.detect import detect, wait_ready
from deepdraft.adapters.server import ServerLoading
from deepdraft.errors import NotAnApi, ServerError, Unauthorized
from deepdraft.records import Acceptance, Failure, RequestTrace, ServerReading
from deepdraft.simulate.process import RunningServer, running
from deepdraft.simulate.spec import Confounds, Fault, Physics, SimulateSpec, Surface
from deepdraft.transport.client import Client
from deepdraft.transport.endpoint import endpoint

PATTERN = (1, 4, 2, 5)
FAST = Physics(prefill_a_s=0.002, step_d_s=0.001, committed_len_pattern=PATTERN)
PLAIN = replace(FAST, committed_len_pattern=())
FULL = Surface(dev_mode=True, per_request_metrics=True, spec_decode_metrics="detailed")


def talk(
    tools: Any,
    server: RunningServer,
    use: Callable[[Adapter], Awaitable[Any]],
    *,
    headers: dict[str, str] | None = None,
    **options: Any,
) -> Any:
    async def work() -> Any:
        async with Client(endpoint(server.url), headers=headers or {}) as client:
            adapter = await detect(client, **options)
            await adapter.settle(limit_s=10.0)
            return await use(adapter)

    return tools.run(work())


async def measured(adapter: Adapter, prompt: Any, max_tokens: int = 25, **options: Any) -> RequestTrace:
    path, body = adapter.request_body(Wish(prompt=prompt, max_tokens=max_tokens, **options))
    trace, failure = await adapter.server.generate(path, body, limit_s=10.0)
    assert failure is None
    return trace


@pytest.fixture(scope="module", params=["openai", "sglang", "vllm", "llamacpp", "transformers"])
def server(request: Any) -> Iterator[RunningServer]:
    spec = SimulateSpec(dialect=request.param, physics=FAST, confounds=Confounds(prefix_cache=True), surface=FULL)
    with running(spec) as one:
        yield one


def test_tokens_of_each_event_and_in_all(tools: Any, server: RunningServer) -> None:
    async def use(adapter: Adapter) -> list[RequestTrace]:
        traces = []
        for route in adapter.capabilities.endpoints:
            adapter.use(route)
            server.truths(reset=True)
            traces.append(await measured(adapter, f"{adapter.probe_prompt()} {route}"))
        return traces

    traces = talk(tools, server, use)
    assert len(traces) == 2
    for trace in traces:
        log = trace.events
        assert trace.usage is not None
        assert trace.usage.completion_tokens == 25
        if server.spec.dialect in ("sglang", "vllm", "llamacpp"):
            assert sum(log.num_tokens or ()) == 25
    (truth,) = server.truths()
    if server.spec.dialect in ("sglang", "vllm"):
        committed = [step.committed_len for step in truth.steps]
        assert traces[-1].events.num_tokens == (1, *committed)
    if server.spec.dialect == "llamacpp":
        assert traces[-1].events.num_tokens == (1,) * 25


def test_acceptance_is_what_happened(tools: Any, server: RunningServer) -> None:
    async def use(adapter: Adapter) -> Acceptance | None:
        server.truths(reset=True)
        before = await adapter.reading(0.0)
        trace = await measured(adapter, adapter.probe_prompt())
        return adapter.acceptance(trace, before, await adapter.reading(1.0), is_alone=True)

    found = talk(tools, server, use)
    if server.spec.dialect in ("openai", "transformers"):
        assert found is None
        return
    (truth,) = server.truths()
    assert found is not None
    assert found.num_steps == len(truth.steps)
    assert found.num_accepted_tokens == sum(step.accepted_len for step in truth.steps)
    assert found.num_draft_tokens == sum(step.draft_len for step in truth.steps)
    assert found.doubt is None


def test_counters_alone_tell_the_same(tools: Any, server: RunningServer) -> None:
    async def use(adapter: Adapter) -> Acceptance | None:
        server.truths(reset=True)
        before = await adapter.reading(0.0)
        trace = replace(await measured(adapter, adapter.probe_prompt()), server_fields={})
        return adapter.acceptance(trace, before, await adapter.reading(1.0), is_alone=True)

    found = talk(tools, server, use)
    if server.spec.dialect in ("openai", "transformers"):
        assert found is None
        return
    (truth,) = server.truths()
    assert found is not None
    assert "/metrics" in found.source
    assert (found.num_steps, found.num_accepted_tokens) == (
        len(truth.steps),
        sum(step.committed_len - 1 for step in truth.steps)
        if server.spec.dialect == "sglang"
        else sum(step.accepted_len for step in truth.steps),
    )


def test_a_prompt_sent_again_is_cold_where_the_engine_can_make_it_so(tools: Any, server: RunningServer) -> None:
    async def use(adapter: Adapter) -> None:
        prompt = adapter.probe_prompt() + " word" * 60
        server.truths(reset=True)
        for salt in ("first", "second"):
            await measured(adapter, prompt, max_tokens=2, cache_salt=salt)

    talk(tools, server, use)
    first, second = server.truths()
    assert first.cached_len == 0
    can_be_cold = server.spec.dialect in ("sglang", "vllm", "llamacpp")
    assert (second.cached_len == 0) == can_be_cold


def test_a_hit_is_seen_in_the_answer_or_the_counters(tools: Any, server: RunningServer) -> None:  # C02
    async def use(adapter: Adapter) -> tuple[Adapter, RequestTrace, ServerReading | None, ServerReading | None]:
        prompt = adapter.probe_prompt() + " word" * 60
        await measured(adapter, prompt, max_tokens=2)
        before = await adapter.reading(0.0)
        trace = await measured(adapter, prompt, max_tokens=2)
        return adapter, trace, before, await adapter.reading(1.0)

    adapter, trace, before, after = talk(tools, server, use, keep_cache=True)
    cached = server.truths()[-1].cached_len
    assert cached is not None
    assert cached > 50
    engine = server.spec.dialect
    assert trace.usage is not None
    if engine in ("openai", "llamacpp"):
        assert trace.usage.cached_tokens == cached
    elif engine == "sglang":  # not in usage without --enable-cache-report, but beside it when asked for
        assert trace.usage.cached_tokens is None
        assert trace.server_fields["sglext"]["cached_tokens_details"]["device"] == cached
    elif engine == "transformers":  # it reuses prompts and tells nobody: unknown, never 0
        assert trace.usage.cached_tokens is None
        assert adapter.capabilities.reports_cached_tokens == "no"
        assert before is None
    if before is not None and after is not None:
        assert after.counters["cached_tokens"] - before.counters["cached_tokens"] == cached
        assert after.counters["prompt_tokens"] - before.counters["prompt_tokens"] == trace.usage.prompt_tokens


def test_flush_empties_the_cache(tools: Any, server: RunningServer) -> None:
    async def use(adapter: Adapter) -> Any:
        prompt = adapter.probe_prompt() + " word" * 60
        await measured(adapter, prompt, max_tokens=2)
        step = await adapter.flush()
        await measured(adapter, prompt, max_tokens=2)
        return adapter.capabilities.cold_means, step

    means, step = talk(tools, server, use, keep_cache=True)
    assert ("flush" in means) == (server.spec.dialect in ("sglang", "vllm")) == (step is not None)
    if step is not None:
        assert step.is_done
        assert server.truths()[-1].cached_len == 0


def test_what_the_server_counts_is_what_it_was_asked_to_count(tools: Any, server: RunningServer) -> None:
    async def use(adapter: Adapter) -> list[tuple[int | None, int | None]]:
        pairs = []
        for route in adapter.capabilities.endpoints:
            adapter.use(route)
            prompt = adapter.probe_prompt()
            trace = await measured(adapter, prompt, max_tokens=2)
            pairs.append((await adapter.count_prompt(prompt), trace.usage.prompt_tokens if trace.usage else None))
        return pairs

    pairs = talk(tools, server, use)
    counting = {"vllm": 2, "llamacpp": 2, "sglang": 1}.get(server.spec.dialect, 0)
    assert sum(counted is not None for counted, _ in pairs) == counting
    assert all(counted in (None, said) for counted, said in pairs)


def test_limits_are_told(tools: Any, server: RunningServer) -> None:
    async def use(adapter: Adapter) -> Any:
        return adapter.capabilities

    found = talk(tools, server, use)
    engine = server.spec.dialect
    told = {"sglang": (262_144, 1_000_000), "vllm": (262_144, 1_000_000), "llamacpp": (262_144, None)}
    assert (found.max_context_len, found.kv_pool_tokens) == told.get(engine, (None, None))
    assert found.engine == {"transformers": "openai"}.get(engine, engine)
    assert found.model == "sim"
    assert found.speculation == ("yes" if engine in told else "unknown")


def test_the_native_route(tools: Any) -> None:
    async def use(adapter: Adapter) -> tuple[RequestTrace, Any]:
        trace = await measured(adapter, adapter.probe_prompt())
        return trace, adapter.acceptance(trace, None, None, is_alone=False)

    with running(SimulateSpec(dialect="sglang", physics=FAST)) as one:
        trace, acceptance = talk(tools, one, use, endpoint="native")
        truth = one.truths()[-1]
    assert truth.route == "/generate"
    assert trace.events.num_tokens == (1, *(step.committed_len for step in truth.steps))
    assert sum(trace.events.num_chars) == len(trace.output_text or "")
    assert trace.usage is not None
    assert trace.usage.cached_tokens == 0
    assert acceptance.num_steps == len(truth.steps)


def test_a_gauge_is_not_taken_for_a_figure_of_the_request(tools: Any) -> None:  # C52
    async def use(adapter: Adapter) -> list[Acceptance | None]:
        adapter.learn(reports_acceptance="no")  # as 0.5.12: the answer says nothing, and there are no metrics
        found = []
        for max_tokens in (200, 16):
            before = await adapter.reading(0.0)
            trace = replace(await measured(adapter, adapter.probe_prompt(), max_tokens), server_fields={})
            found.append(adapter.acceptance(trace, before, await adapter.reading(1.0), is_alone=True))
        return found

    physics = replace(PLAIN, committed_len_probs=(0.3, 0.3, 0.4))
    with running(SimulateSpec(dialect="sglang", physics=physics, surface=Surface(metrics=False))) as one:
        long, short = talk(tools, one, use)
    assert long is not None
    assert long.is_lifetime_average
    assert "every 40 decode steps" in (long.doubt or "")
    assert short is None  # 16 tokens are fewer than 40 steps: the gauge stood still


@pytest.mark.parametrize("dialect", ["sglang", "vllm"])
def test_a_refused_flush_is_not_done(tools: Any, dialect: Any, monkeypatch: pytest.MonkeyPatch) -> None:  # C04
    monkeypatch.setattr("deepdraft.adapters.flush.FLUSH_LIMIT_S", 0.3)

    async def use(adapter: Adapter) -> Any:
        return await adapter.flush()

    confounds = Confounds(prefix_cache=True, flush="refused")
    with running(SimulateSpec(dialect=dialect, physics=PLAIN, confounds=confounds, surface=FULL)) as one:
        step = talk(tools, one, use)
    assert not step.is_done
    assert "try " in step.evidence


def test_keys_and_a_base_path(tools: Any) -> None:
    surface = Surface(base_path="/team/llm", api_key="k3y", admin_key="adm1n")
    key, admin = {"authorization": "Bearer k3y"}, {"authorization": "Bearer adm1n"}

    async def use(adapter: Adapter) -> Any:
        return adapter.capabilities, await adapter.flush(), await adapter.health()

    with running(SimulateSpec(dialect="sglang", physics=PLAIN, surface=surface)) as one:
        found, step, health = talk(tools, one, use, headers=key, admin_headers=admin)
        assert (found.engine, found.kv_pool_tokens, step.is_done, health) == ("sglang", 1_000_000, True, None)
        _, locked, _ = talk(tools, one, use, headers=key)
        assert not locked.is_done
        assert "--admin-key" in locked.evidence
        with pytest.raises(Unauthorized) as raised:
            talk(tools, one, use)
        assert "--api-key" in (raised.value.hint or "")
        wrong = replace(one, url=one.url.replace("/team/llm", "/nowhere"))
        with pytest.raises(NotAnApi, match="404"):
            talk(tools, wrong, use, headers=key)


def test_a_loading_server(tools: Any) -> None:
    async def work(url: str) -> list[str]:
        reasons: list[str] = []
        async with Client(endpoint(url)) as client:
            with pytest.raises(ServerLoading, match="Loading"):
                await detect(client)
            await wait_ready(client, 20.0, lambda _, reason: reasons.append(reason))
            assert (await detect(client)).capabilities.engine == "llamacpp"
        return reasons

    confounds = Confounds(loading_s=1.5)
    with running(SimulateSpec(dialect="llamacpp", physics=PLAIN, confounds=confounds)) as one:
        reasons = tools.run(work(one.url))
    assert reasons
    assert all("Loading model" in reason for reason in reasons)


@pytest.mark.parametrize("policy", ["422", "400"])
def test_a_server_that_minds_unknown_fields(tools: Any, policy: Any) -> None:
    async def use(adapter: Adapter) -> Any:
        return adapter.capabilities, (await measured(adapter, adapter.probe_prompt(), 5)).usage

    confounds = Confounds(unknown_fields=policy)
    with running(SimulateSpec(dialect="openai", physics=PLAIN, confounds=confounds)) as one:
        found, usage = talk(tools, one, use)
    assert found.ignores_eos == "no"
    assert any("ignore_eos" in doubt for doubt in found.doubts)
    assert usage.completion_tokens == 5


FAILURES: list[tuple[Fault, str, str]] = [
    (Fault(kind="cut"), "StreamEndedEarly", "neither [DONE] nor a finish_reason"),
    (Fault(kind="error_in_stream", message="boom"), "ErrorInStream", "boom"),
    (Fault(kind="empty_stream"), "EmptyStream", "without any text"),
    (
        Fault(kind="status", status=429, retry_after_s=7, message="slow down"),
        "HttpStatus",
        "slow down (retry after 7 s)",
    ),
    *(
        (Fault(kind="status", status=status, body=body, message="no luck"), "HttpStatus", "no luck")  # type: ignore[arg-type]
        for status, body in ((413, "nested"), (400, "flat"), (401, "bare_string"), (500, "string"), (422, "detail"))
    ),
    (Fault(kind="status", status=502, body="html"), "HttpStatus", "an HTML page"),
    (Fault(kind="status", status=431, body="empty"), "HttpStatus", "HTTP 431: Request Header Fields Too Large"),
]


def test_every_failure_is_one(tools: Any) -> None:  # C40, C41, C45
    async def work(url: str) -> list[tuple[RequestTrace, Failure | None]]:
        found = []
        async with Client(endpoint(url)) as client:
            adapter = await detect(client)
            for _ in FAILURES:
                path, body = adapter.request_body(Wish(prompt=adapter.probe_prompt(), max_tokens=16))
                found.append(await adapter.server.generate(path, body, limit_s=10.0))
        return found

    faults = tuple(replace(fault, at=(index + 1,)) for index, (fault, _, _) in enumerate(FAILURES))
    with running(SimulateSpec(dialect="openai", physics=PLAIN, faults=faults)) as one:
        found = tools.run(work(one.url))
    for (trace, failure), (fault, name, words) in zip(found, FAILURES, strict=True):
        assert failure is not None, fault
        assert failure.name == name
        assert words in failure.message
        if fault.kind in ("cut", "error_in_stream"):
            assert trace.events.kinds.count("t") == fault.after_tokens


def test_a_dead_server_says_so(tools: Any) -> None:
    async def use(adapter: Adapter) -> Any:
        one.kill()
        return await adapter.health(limit_s=2.0), await adapter.reading(0.0), await adapter.flush()

    with running(SimulateSpec(dialect="sglang", physics=PLAIN)) as one:
        health, reading, step = talk(tools, one, use)
    assert health is not None
    assert reading is None
    assert not step.is_done
    with pytest.raises(ServerError):
        talk(tools, one, use)
