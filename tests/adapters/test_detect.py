"""Which engine is there: each by the answers that were recorded, and everything that is no engine at all."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from deepdraft.adapters.detect import ADAPTERS, detect, wait_ready
from deepdraft.adapters.server import ServerLoading
from deepdraft.errors import NotAnApi, ServerError, Unauthorized, Unreachable, UsageError
from deepdraft.transport.client import Client
from deepdraft.transport.endpoint import endpoint

OPENAI_MODELS = {"object": "list", "data": [{"id": "m", "object": "model", "owned_by": "someone"}]}


def found(tools: Any, routes: Any, *, base_path: str = "", **options: Any) -> Any:
    async def work() -> Any:
        async with tools.small_server(routes, base_path=base_path) as (_, client):
            return await detect(client, **options)

    return tools.run(work())


def engine_routes(tools: Any, recorded: Any, engine: str) -> dict[tuple[str, str], Any]:
    answer = tools.Answer
    if engine == "sglang":
        return {
            ("GET", "/v1/models"): answer(200, recorded.json("sglang-0.5.23/v1_models.json")),
            ("GET", "/server_info"): answer(200, recorded.json("sglang-0.5.23/server_info.json")),
            ("GET", "/metrics"): answer(200, recorded.text("sglang-0.5.23/metrics.txt")),
        }
    if engine == "vllm":
        return {
            ("GET", "/v1/models"): answer(200, recorded.json("vllm-0.32.0/models.json")),
            ("GET", "/version"): answer(200, recorded.json("vllm-0.32.0/version.json")),
            ("GET", "/metrics"): answer(200, recorded.text("vllm-0.32.0/metrics_specdecode_ngram.txt")),
        }
    if engine == "llamacpp":
        return {
            ("GET", "/v1/models"): answer(200, recorded.json("llama.cpp-2026-10/models.json")),
            ("GET", "/props"): answer(200, recorded.json("llama.cpp-2026-10/props.json")),
            ("GET", "/metrics"): answer(200, recorded.text("llama.cpp-2026-10/metrics_idle.txt")),
        }
    if engine == "transformers":
        return {("GET", "/v1/models"): answer(200, recorded.json("transformers-5.24.0/models.json"))}
    if engine == "tensorrt_llm":
        return {
            ("GET", "/v1/models"): answer(200, {"data": [{"id": "m", "owned_by": "tensorrt_llm"}]}),
            ("GET", "/version"): answer(200, {"version": "1.2.0"}),
        }
    if engine == "lmdeploy":
        return {("GET", "/v1/models"): answer(200, {"data": [{"id": "m", "owned_by": "lmdeploy"}]})}
    if engine == "ollama":
        return {
            ("GET", "/v1/models"): answer(200, {"data": [{"id": "m", "owned_by": "library"}]}),
            ("GET", "/api/version"): answer(200, {"version": "0.14.0"}),
        }
    assert engine == "tgi"
    return {
        ("GET", "/v1/models"): answer(200, {"data": [{"id": "m", "owned_by": "m"}]}),
        ("GET", "/info"): answer(200, {"model_id": "m", "max_total_tokens": 4096, "max_input_tokens": 4000}),
    }


@pytest.mark.parametrize(
    ("engine", "adapter", "detected_by"),
    [
        ("sglang", "sglang", "GET /server_info"),
        ("vllm", "vllm", "owned_by in /v1/models"),
        ("llamacpp", "llamacpp", "GET /props"),
        ("transformers", "openai", "no answer of an engine we know"),
        ("tensorrt_llm", "tensorrt_llm", "owned_by in /v1/models"),
        ("lmdeploy", "lmdeploy", "owned_by in /v1/models"),
        ("ollama", "ollama", "GET /api/version"),
        ("tgi", "tgi", "GET /info"),
    ],
)
def test_engines_are_recognised(tools: Any, recorded: Any, engine: str, adapter: str, detected_by: str) -> None:
    capabilities = found(tools, engine_routes(tools, recorded, engine)).capabilities
    assert (capabilities.engine, capabilities.detected_by) == (adapter, detected_by)
    assert capabilities.model == {
        "sglang": "tiny",
        "vllm": "smollm2",
        "llamacpp": "smollm2-135m",
        "transformers": "/models/smollm2-135m-hf",
    }.get(engine, "m")


@pytest.mark.parametrize("engine", ["sglang", "llamacpp", "ollama", "tgi", "vllm"])
def test_an_owner_that_a_proxy_rewrote_does_not_mislead(tools: Any, recorded: Any, engine: str) -> None:
    routes = engine_routes(tools, recorded, engine)
    routes["GET", "/v1/models"] = tools.Answer(200, OPENAI_MODELS)
    assert found(tools, routes).capabilities.engine == engine


def test_a_base_path_is_before_every_path(tools: Any, recorded: Any) -> None:
    capabilities = found(tools, engine_routes(tools, recorded, "sglang"), base_path="/team/llm").capabilities
    assert (capabilities.engine, capabilities.kv_pool_tokens) == ("sglang", 4_009_361)


def test_an_engine_named_by_the_user_is_believed(tools: Any, recorded: Any) -> None:
    capabilities = found(tools, engine_routes(tools, recorded, "vllm"), engine="openai").capabilities
    assert (capabilities.engine, capabilities.detected_by) == ("openai", "named by the user")
    silent = found(tools, {("GET", "/v1/models"): tools.Answer(200, OPENAI_MODELS)}, engine="sglang").capabilities
    assert (silent.engine, silent.kv_pool_tokens, silent.prefix_cache) == ("sglang", None, "unknown")


def test_an_unknown_engine(tools: Any) -> None:
    with pytest.raises(UsageError, match="unknown engine 'mlx'") as raised:
        found(tools, {}, engine="mlx")
    assert all(name in (raised.value.hint or "") for name in ADAPTERS)


def test_nothing_listens() -> None:
    async def work() -> None:
        await detect(Client(endpoint("http://127.0.0.1:9")))

    with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"):
        asyncio.run(work())


def test_an_html_page(tools: Any) -> None:
    page = tools.Answer(200, "<!doctype html><title>Welcome to nginx!</title>", "text/html")
    with pytest.raises(NotAnApi, match=r"Welcome to nginx!") as raised:
        found(tools, {("GET", "/v1/models"): page})
    assert "/v1" in (raised.value.hint or "")


def test_something_that_is_no_list_of_models(tools: Any) -> None:
    with pytest.raises(NotAnApi, match=r"Ollama is running"):
        found(tools, {("GET", "/v1/models"): tools.Answer(200, "Ollama is running")})


def test_a_wrong_base_path(tools: Any) -> None:
    with pytest.raises(NotAnApi, match=r"HTTP 404: Not Found") as raised:
        found(tools, {})
    assert "before /v1" in (raised.value.hint or "")


@pytest.mark.parametrize("body", [{"error": "Unauthorized"}, {"error": {"message": "Unauthorized"}}, "Unauthorized"])
def test_a_key_is_wanted(tools: Any, body: Any) -> None:  # C45
    with pytest.raises(Unauthorized, match=r"HTTP 401: Unauthorized") as raised:
        found(tools, {("GET", "/v1/models"): tools.Answer(401, body)})
    assert "--api-key" in (raised.value.hint or "")


def test_the_key_is_not_good_enough(tools: Any) -> None:
    with pytest.raises(Unauthorized, match=r"HTTP 403"):
        found(tools, {("GET", "/v1/models"): tools.Answer(403, {"detail": "Forbidden"})})


LOADING = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}


def test_a_loading_server(tools: Any) -> None:
    with pytest.raises(ServerLoading, match=r"Loading model"):
        found(tools, {("GET", "/v1/models"): tools.Answer(503, LOADING)})


def test_a_server_that_lists_its_model_before_it_has_loaded_it(tools: Any, recorded: Any) -> None:
    routes = engine_routes(tools, recorded, "llamacpp")
    routes["GET", "/props"] = tools.Answer(503, LOADING)
    with pytest.raises(ServerLoading, match=r"Loading model"):
        found(tools, routes)


def test_a_proxy_whose_server_is_away(tools: Any) -> None:
    page = tools.Answer(502, "<html><title>502 Bad Gateway</title></html>", "text/html")
    with pytest.raises(ServerError, match=r"502 Bad Gateway"):
        found(tools, {("GET", "/v1/models"): page})


def test_several_models_to_choose_from(tools: Any) -> None:
    cards = [{"id": "a", "owned_by": "x"}, {"id": "b", "owned_by": "x"}]
    routes = {("GET", "/v1/models"): tools.Answer(200, {"data": cards})}
    with pytest.raises(UsageError, match=r"2 models: a, b") as raised:
        found(tools, routes)
    assert "--model" in (raised.value.hint or "")
    assert found(tools, routes, model="b").capabilities.model == "b"


def test_an_adapter_beside_its_base_model_is_no_choice(tools: Any) -> None:
    cards = [{"id": "base", "parent": None}, {"id": "lora", "parent": "base"}]
    assert found(tools, {("GET", "/v1/models"): tools.Answer(200, {"data": cards})}).capabilities.model == "base"


def test_a_model_that_is_not_listed_is_a_doubt(tools: Any) -> None:
    capabilities = found(tools, {("GET", "/v1/models"): tools.Answer(200, OPENAI_MODELS)}, model="other").capabilities
    assert capabilities.model == "other"
    assert any("does not list the model 'other'" in doubt for doubt in capabilities.doubts)


def test_a_server_without_a_model_list(tools: Any) -> None:
    capabilities = found(tools, {}, engine="openai", model="m").capabilities
    assert capabilities.model == "m"
    assert any("no model list: HTTP 404" in doubt for doubt in capabilities.doubts)


def test_a_log_that_is_not_there_is_a_doubt(tools: Any, tmp_path: Path) -> None:
    routes = {("GET", "/v1/models"): tools.Answer(200, OPENAI_MODELS)}
    capabilities = found(tools, routes, server_log=tmp_path / "none.log").capabilities
    assert any("log can't be read" in doubt for doubt in capabilities.doubts)


def test_waiting_until_the_model_is_loaded(tools: Any) -> None:
    waits: list[tuple[float, str]] = []

    async def work() -> None:
        answers = [tools.Answer(503, LOADING), tools.Answer(503, LOADING), tools.Answer(200, {"status": "ok"})]
        routes = {
            ("GET", "/v1/models"): tools.Answer(200, OPENAI_MODELS),
            ("GET", "/health"): lambda _: answers.pop(0),
        }
        async with tools.small_server(routes) as (_, client):
            await wait_ready(client, 20.0, lambda waited_s, reason: waits.append((waited_s, reason)))

    tools.run(work())
    assert len(waits) == 2
    assert waits[0][0] < waits[1][0]
    assert all("Loading model" in reason for _, reason in waits)


def test_waiting_ends(tools: Any) -> None:
    async def loading() -> None:
        async with tools.small_server({("GET", "/v1/models"): tools.Answer(503, LOADING)}) as (_, client):
            await wait_ready(client, 0.3)

    async def away() -> None:
        await wait_ready(Client(endpoint("http://127.0.0.1:9")), 0.3)

    with pytest.raises(ServerLoading, match=r"Loading model"):
        tools.run(loading())
    with pytest.raises(Unreachable):
        tools.run(away())


def test_a_server_without_a_health_route_is_ready(tools: Any) -> None:
    async def work() -> None:
        async with tools.small_server({("GET", "/v1/models"): tools.Answer(200, OPENAI_MODELS)}) as (_, client):
            await wait_ready(client, 0.1)

    tools.run(work())
