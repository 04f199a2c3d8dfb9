"""Settling: which routes answer, and which optional fields a server takes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.body import Wish
from deepdraft.adapters.detect import detect
from deepdraft.errors import ServerError, Unauthorized, UsageError
from deepdraft.records import Capabilities

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
MODELS = {"object": "list", "data": [{"id": "m", "owned_by": "someone"}]}


class Engine:
    """A server that generates `max_tokens` tokens, minds the fields in `refused`, and says so in `refusal`."""

    def __init__(
        self, tools: Any, *, refused: tuple[str, ...] = (), refusal: str = "{name}", status: int = 400
    ) -> None:
        self.tools = tools
        self.refused = refused
        self.refusal = refusal
        self.status = status
        self.continuous = True
        self.details: dict[str, Any] = {}
        self.ends_after: int | None = None

    def routes(self) -> dict[tuple[str, str], Any]:
        models = self.tools.Answer(200, MODELS)
        return {("GET", "/v1/models"): models, ("POST", CHAT): self.chat, ("POST", COMPLETIONS): self.text}

    def chat(self, asked: Any) -> Any:
        body = asked.json
        return self._refusal(body) or self._stream(
            body, len(body["messages"][0]["content"].split()) + 7, is_chat=True
        )

    def text(self, asked: Any) -> Any:
        body = asked.json
        return self._refusal(body) or self._stream(
            body, len(body["prompt"]) if isinstance(body["prompt"], list) else 10, is_chat=False
        )

    def _refusal(self, body: Any) -> Any:
        present = [name for name in self.refused if name in body or name in body.get("stream_options", {})]
        if not present:
            return None
        message = self.refusal.format(name=present[0], names={*present})
        return self.tools.Answer(self.status, {"error": {"message": message}})

    def _stream(self, body: Any, prompt_tokens: int, *, is_chat: bool) -> Any:
        options = body.get("stream_options", {})
        num_tokens = self.ends_after or body.get("max_tokens") or body["max_completion_tokens"]
        events = []
        for index in range(num_tokens):
            part = {"delta": {"content": "a"}} if is_chat else {"text": "a"}
            event: dict[str, Any] = {"choices": [{"index": 0, **part}]}
            if self.continuous and options.get("continuous_usage_stats"):
                event["usage"] = self.tools.usage(prompt_tokens, index + 1)
            events.append(event)
        events.append(self.tools.chat_chunk(None, "length"))
        if options.get("include_usage"):
            events.append({"choices": [], "usage": self.tools.usage(prompt_tokens, num_tokens, **self.details)})
        return self.tools.Answer(pieces=(self.tools.sse(*events),))


def settled(tools: Any, routes: Any, **options: Any) -> tuple[Adapter, Any]:
    async def work() -> tuple[Adapter, Any]:
        async with tools.small_server(routes) as (server, client):
            adapter = await detect(client, **options)
            await adapter.settle(limit_s=5.0)
            return adapter, server

    result: tuple[Adapter, Any] = tools.run(work())
    return result


def body_of(adapter: Adapter, prompt: Any = "hello", **options: Any) -> tuple[str, dict[str, Any]]:
    path, body = adapter.request_body(Wish(prompt=prompt, max_tokens=32, temperature=0.0, **options))
    result: dict[str, Any] = json.loads(body)
    return path, result


def test_a_server_that_takes_everything(tools: Any) -> None:
    adapter, server = settled(tools, Engine(tools).routes())
    found: Capabilities = adapter.capabilities
    assert (adapter.endpoint, found.endpoints) == ("chat", ("chat", "completions"))
    assert (found.continuous_usage, found.token_id_prompts, found.ignores_eos) == ("yes", "yes", "unknown")
    assert (found.reports_cached_tokens, found.tokenizes, found.doubts) == ("no", "no", ())
    assert adapter.num_probe_requests == 3
    path, body = body_of(adapter)
    assert path == CHAT
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 32,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "ignore_eos": True,
    }
    assert len(server.bodies(CHAT)) + len(server.bodies(COMPLETIONS)) == 3


def test_no_two_probes_begin_alike(tools: Any) -> None:
    engine = Engine(tools, refused=("ignore_eos",))
    _, first = settled(tools, engine.routes())
    _, second = settled(tools, engine.routes())
    prompts = [body["messages"][0]["content"] for server in (first, second) for body in server.bodies(CHAT)]
    assert len(prompts) == 4
    assert len({prompt.split()[0] for prompt in prompts}) == 4
    ids = [body["prompt"] for server in (first, second) for body in server.bodies(COMPLETIONS)]
    heads = [tuple(prompt[:3]) for prompt in ids if isinstance(prompt, list)]
    assert len(set(heads)) == len(heads) == 2


@pytest.mark.parametrize(
    ("refusal", "status"),
    [
        ("Unexpected fields in the request: {names}", 422),
        ("Unrecognized request argument supplied: {name}", 400),
        ("[{{'type': 'extra_forbidden', 'loc': ('body', '{name}'), 'msg': 'Extra inputs are not permitted'}}]", 400),
    ],
)
def test_fields_that_a_refusal_names_are_dropped(tools: Any, refusal: str, status: int) -> None:
    engine = Engine(tools, refused=("ignore_eos", "continuous_usage_stats"), refusal=refusal, status=status)
    adapter, _ = settled(tools, engine.routes())
    _, body = body_of(adapter)
    assert body["stream_options"] == {"include_usage": True}
    assert "ignore_eos" not in body
    found = adapter.capabilities
    assert (found.ignores_eos, found.continuous_usage) == ("no", "no")
    assert any("refuses" in doubt and "ignore_eos" in doubt for doubt in found.doubts)


def test_transformers_serve_as_recorded(tools: Any, recorded: Any) -> None:
    folder = "transformers-5.24.0"

    def chat(asked: Any) -> Any:
        if "ignore_eos" in asked.json:
            return tools.Answer(422, recorded.json(f"{folder}/error_422_unknown_field.json"))
        return tools.Answer(pieces=(recorded.stream(f"{folder}/chat_stream.sse"),))

    def text(asked: Any) -> Any:
        if isinstance(asked.json["prompt"], list):
            return tools.Answer(400, recorded.json(f"{folder}/error_400_token_ids.json"))
        return tools.Answer(pieces=(recorded.stream(f"{folder}/completions_stream.sse"),))

    routes = {
        ("GET", "/v1/models"): tools.Answer(200, recorded.json(f"{folder}/models.json")),
        ("POST", CHAT): chat,
        ("POST", COMPLETIONS): text,
    }
    adapter, server = settled(tools, routes)
    found = adapter.capabilities
    assert (found.engine, found.endpoints, found.token_id_prompts) == ("openai", ("chat", "completions"), "no")
    assert (found.ignores_eos, found.reports_cached_tokens, found.prefix_cache) == ("no", "no", "unknown")
    assert found.doubts == (
        "the server refuses ignore_eos: HTTP 422: Unexpected fields in the request: {'ignore_eos'}",
    )
    assert len(server.bodies(CHAT)) == 2
    assert "ignore_eos" not in body_of(adapter)[1]


def test_a_refusal_that_names_nothing_costs_all_but_usage(tools: Any) -> None:
    engine = Engine(tools, refused=("ignore_eos",), refusal="bad request")
    adapter, _ = settled(tools, engine.routes())
    _, body = body_of(adapter)
    assert body["stream_options"] == {"include_usage": True}
    assert "ignore_eos" not in body
    assert adapter.num_probe_requests == 4  # the second route begins with what the first one took
    assert any("sent without" in doubt and "bad request" in doubt for doubt in adapter.capabilities.doubts)


def test_at_last_every_optional_field_is_dropped(tools: Any) -> None:
    engine = Engine(tools, refused=("include_usage", "ignore_eos"), refusal="no")
    adapter, _ = settled(tools, engine.routes())
    assert set(body_of(adapter)[1]) == {"model", "messages", "max_tokens", "temperature", "stream"}


def test_a_refusal_that_nothing_cures_is_an_error(tools: Any) -> None:
    engine = Engine(tools, refused=("messages",), refusal="the model is asleep")
    with pytest.raises(ServerError, match=r"the model is asleep"):
        settled(tools, engine.routes(), endpoint="chat")


def test_max_completion_tokens(tools: Any) -> None:
    words = "Unsupported parameter: '{name}' is not supported with this model. Use 'max_completion_tokens' instead."
    adapter, _ = settled(tools, Engine(tools, refused=("max_tokens",), refusal=words).routes())
    assert body_of(adapter)[1]["max_completion_tokens"] == 32


def test_completions_where_there_is_no_chat(tools: Any) -> None:
    routes = Engine(tools).routes()
    del routes["POST", CHAT]
    adapter, _ = settled(tools, routes)
    assert (adapter.endpoint, adapter.capabilities.endpoints) == ("completions", ("completions",))
    assert any("there is no /v1/chat/completions" in doubt for doubt in adapter.capabilities.doubts)
    path, body = body_of(adapter, [1, 2, 3])
    assert (path, body["prompt"]) == (COMPLETIONS, [1, 2, 3])


@pytest.mark.parametrize("status", [400, 500])
def test_completions_where_the_model_has_no_chat_template(tools: Any, status: int) -> None:
    words = "default chat template is no longer allowed, so you must provide a chat template"
    adapter, _ = settled(tools, Engine(tools, refused=("messages",), refusal=words, status=status).routes())
    assert adapter.endpoint == "completions"
    assert any("chat template" in doubt for doubt in adapter.capabilities.doubts)


def test_the_endpoint_asked_for_is_used_alone(tools: Any) -> None:
    adapter, server = settled(tools, Engine(tools).routes(), endpoint="completions")
    assert (adapter.endpoint, server.bodies(CHAT)) == ("completions", [])
    with pytest.raises(UsageError, match=r"does not answer on its chat"):
        adapter.use("chat")
    with pytest.raises(UsageError, match=r"no endpoint 'native'"):
        settled(tools, Engine(tools).routes(), endpoint="native")


def test_changing_the_endpoint(tools: Any) -> None:
    adapter, _ = settled(tools, Engine(tools).routes())
    with pytest.raises(UsageError, match=r"takes no token ids"):
        body_of(adapter, [1, 2])
    adapter.use("completions")
    assert body_of(adapter, [1, 2])[0] == COMPLETIONS


def test_token_ids_that_are_refused_or_miscounted(tools: Any) -> None:
    def answer(asked: Any, *, ids_count: int | None) -> Any:
        if isinstance(asked.json["prompt"], str):
            return engine.text(asked)
        if ids_count is None:
            return tools.Answer(422, {"detail": "prompt: Input should be a valid string"})
        events = ({"choices": [{"text": "a"}]}, tools.chat_chunk(None, "length"))
        return tools.Answer(pieces=(tools.sse(*events, {"choices": [], "usage": tools.usage(ids_count, 1)}),))

    engine = Engine(tools)
    for ids_count, words in ((None, ""), (999, "counted as 999 tokens")):
        routes = engine.routes()
        routes["POST", COMPLETIONS] = lambda asked, ids_count=ids_count: answer(asked, ids_count=ids_count)
        adapter, _ = settled(tools, routes)
        assert adapter.capabilities.token_id_prompts == "no"
        assert any(words in doubt for doubt in adapter.capabilities.doubts) == bool(words)


def test_what_a_probe_shows(tools: Any) -> None:
    engine = Engine(tools)
    engine.continuous = False
    engine.details = {"prompt_tokens_details": {"cached_tokens": 0}}
    engine.ends_after = 2
    found = settled(tools, engine.routes())[0].capabilities
    assert found.continuous_usage == "no"
    assert found.reports_cached_tokens == "yes"
    assert found.ignores_eos == "no"  # it took the field and ended early all the same


def test_nobody_generates(tools: Any) -> None:
    routes = {("GET", "/v1/models"): tools.Answer(200, MODELS)}
    with pytest.raises(ServerError, match=r"there is no /v1/chat/completions.*there is no /v1/completions") as raised:
        settled(tools, routes)
    assert "before /v1" in (raised.value.hint or "")


def test_a_key_is_wanted_only_to_generate(tools: Any) -> None:
    answer = tools.Answer(401, {"error": "Unauthorized"})
    routes = {("GET", "/v1/models"): tools.Answer(200, MODELS), ("POST", CHAT): answer}
    with pytest.raises(Unauthorized, match=r"HTTP 401: Unauthorized"):
        settled(tools, routes)


def test_an_unknown_model_is_not_taken_for_a_missing_route(tools: Any) -> None:
    words = {"error": {"message": "The model `x` does not exist.", "code": 404}}
    routes = {
        ("GET", "/v1/models"): tools.Answer(200, MODELS),
        ("POST", CHAT): tools.Answer(404, words),
        ("POST", COMPLETIONS): tools.Answer(404, words),
    }
    with pytest.raises(ServerError, match=r"The model `x` does not exist"):
        settled(tools, routes, model="x")


def test_a_server_that_does_not_stream(tools: Any, recorded: Any) -> None:
    answer = tools.Answer(200, recorded.json("vllm-0.32.0/chat_nonstream.json"))
    routes = {("GET", "/v1/models"): tools.Answer(200, MODELS), ("POST", CHAT): answer}
    with pytest.raises(ServerError, match=r"ignored `stream: true`"):
        settled(tools, routes, endpoint="chat")


def test_a_model_that_has_nothing_to_say_still_answers(tools: Any, recorded: Any) -> None:
    answer = tools.Answer(pieces=(recorded.stream("transformers-5.24.0/chat_stream_timed.sse"),))
    routes = {("GET", "/v1/models"): tools.Answer(200, MODELS), ("POST", CHAT): answer}
    assert settled(tools, routes, endpoint="chat")[0].capabilities.endpoints == ("chat",)


def test_a_silent_server_is_not_waited_for_for_ever(tools: Any) -> None:
    async def work() -> None:
        routes = {("GET", "/v1/models"): tools.Answer(200, MODELS)}
        routes["POST", CHAT] = tools.Answer(pieces=(30.0,))
        async with tools.small_server(routes) as (_, client):
            adapter = await detect(client, endpoint="chat")
            await adapter.settle(limit_s=0.1)

    with pytest.raises(ServerError, match=r"no output within|no answer within"):
        tools.run(work())


def test_extra_fields_come_last_and_answers_may_end_early(tools: Any) -> None:
    extra = {"temperature": 0.6, "chat_template_kwargs": {"enable_thinking": False}}
    adapter, server = settled(tools, Engine(tools).routes(), extra_body=extra)
    _, body = body_of(adapter, stop_early=True, seed=7)
    assert (body["temperature"], body["chat_template_kwargs"], body["seed"]) == (0.6, {"enable_thinking": False}, 7)
    assert "ignore_eos" not in body
    assert server.bodies(CHAT)[0]["chat_template_kwargs"] == {"enable_thinking": False}


def test_health(tools: Any) -> None:
    async def work() -> list[str | None]:
        routes = {("GET", "/v1/models"): tools.Answer(200, MODELS)}
        async with tools.small_server(routes) as (server, client):
            adapter = await detect(client)
            first = await adapter.health()
            server.routes["GET", "/health"] = tools.Answer(503, {"error": "engine died"})
            second = await adapter.health()
            server.routes["GET", "/health"] = tools.Answer(pieces=(30.0,))
            return [first, second, await adapter.health(limit_s=0.1)]

    assert tools.run(work()) == [None, "HTTP 503: engine died", "the server did not answer within 0.1 s"]


def test_a_plain_server_offers_no_more(tools: Any) -> None:
    async def work() -> None:
        async with tools.small_server(Engine(tools).routes()) as (_, client):
            adapter = await detect(client)
            assert await adapter.tokenize("a") is None
            assert await adapter.count_prompt("a") is None
            assert await adapter.flush() is None
            assert await adapter.reading(1.0) is None
            assert adapter.cold_fields("salt") == {}
            assert adapter.error_message(400, b'{"error":"no"}') == "HTTP 400: no"

    tools.run(work())
