"""Finds out which engine answers at an address, and makes the adapter for it.

The order: what /v1/models says (`owned_by` puts one engine first), then the answers that only one engine gives.
An engine named by the user is taken at their word.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.deepdraft import DeepdraftAdapter
from deepdraft.adapters.json_value import object_of, whole
from deepdraft.adapters.known_server import Setup
from deepdraft.adapters.llamacpp import LlamacppAdapter
from deepdraft.adapters.lmdeploy import LmdeployAdapter
from deepdraft.adapters.message import error_message, page_title
from deepdraft.adapters.ollama import OllamaAdapter
from deepdraft.adapters.server import NOT_READY, Reply, Server, ServerLoading
from deepdraft.adapters.sglang import SglangAdapter
from deepdraft.adapters.tensorrt_llm import TensorrtLlmAdapter
from deepdraft.adapters.tgi import TgiAdapter
from deepdraft.adapters.vllm import VllmAdapter
from deepdraft.errors import NotAnApi, RequestFailed, ServerError, Unauthorized, Unreachable, UsageError
from deepdraft.records import Capabilities
from deepdraft.transport.client import Client

ADAPTERS: dict[str, type[Adapter]] = {
    "openai": Adapter,
    "deepdraft": DeepdraftAdapter,
    "sglang": SglangAdapter,
    "vllm": VllmAdapter,
    "llamacpp": LlamacppAdapter,
    "tensorrt_llm": TensorrtLlmAdapter,
    "lmdeploy": LmdeployAdapter,
    "ollama": OllamaAdapter,
    "tgi": TgiAdapter,
}
# The engines that one answer of their own gives away come first; vLLM and TensorRT-LLM share /version.
_ORDER = ("deepdraft", "sglang", "llamacpp", "tgi", "vllm", "tensorrt_llm", "ollama", "lmdeploy")
_OWNERS = {"library": "ollama", "Text Generation Inference": "tgi"}
_PAUSE_S = (0.2, 2.0)
"""First and longest pause between looks at a server that is not ready."""


async def detect(
    client: Client,
    *,
    engine: str = "auto",
    model: str | None = None,
    endpoint: str = "auto",
    server_log: Path | None = None,
    admin_headers: Mapping[str, str] | None = None,
    extra_body: Mapping[str, Any] | None = None,
    keep_cache: bool = False,
) -> Adapter:
    """The adapter of the server behind `client`. Generates nothing.

    engine: auto, or a name of ADAPTERS. model: the name in requests; None takes the server's only one.
    endpoint: auto, chat, completions, native. server_log: the server's log, for figures only it tells.
    keep_cache: leave the server's prefix cache in use.
    Raises UsageError (unknown engine, several models to choose from), Unreachable, Unauthorized, NotAnApi (HTML, or
    nothing that looks like an inference API), ServerLoading.
    """
    if engine != "auto" and engine not in ADAPTERS:
        raise UsageError(f"unknown engine {engine!r}", hint=f"one of: auto, {', '.join(ADAPTERS)}")
    server = Server(client, admin_headers)
    reply = await _models(server)
    cards = _model_cards(reply)
    name, detected_by, answers = await _engine(server, engine, cards, reply)
    card = _model_card(cards, model)
    known = Capabilities(
        engine=name,
        detected_by=detected_by,
        model=model or card.get("id"),
        max_context_len=whole(card.get("max_model_len")),
        doubts=_model_doubts(cards, model, reply),
    )
    setup = Setup(endpoint=endpoint, server_log=server_log, extra_body=dict(extra_body or {}), keep_cache=keep_cache)
    adapter = ADAPTERS[name](server, known, setup)
    if server_log is not None and not server_log.is_file():
        adapter.doubt(f"the server's log can't be read: {server_log}")
    await adapter.inspect(answers)
    return adapter


async def wait_ready(client: Client, limit_s: float, on_wait: Callable[[float, str], None] | None = None) -> None:
    """Wait until the server answers and has loaded its model.

    limit_s: how long at most. on_wait: called between looks with the seconds waited and the reason.
    Raises Unreachable or ServerLoading when the time is over, and at once what waiting can't cure (NotAnApi).
    """
    server = Server(client)
    began = time.monotonic()
    pause_s = _PAUSE_S[0]
    while True:
        reason = await _not_ready(server)
        if reason is None:
            return
        waited_s = time.monotonic() - began
        if waited_s + pause_s > limit_s:
            raise reason
        if on_wait is not None:
            on_wait(waited_s, reason.message)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 1.5, _PAUSE_S[1])


async def _not_ready(server: Server) -> ServerError | None:
    """Why the server can't be used yet; None when it can. Raises what waiting can't cure."""
    try:
        reply = await server.get("/v1/models")
        if reply.status < 400:
            # llama.cpp lists its model while it still loads it; its health tells.
            reply = await server.get("/health")
    except Unreachable as error:
        return error
    except NotAnApi:
        raise
    except (ServerError, RequestFailed) as error:
        return Unreachable(error.message, hint=error.hint)
    return ServerLoading.said_by(server, reply) if reply.status in NOT_READY else None


async def _models(server: Server) -> Reply:
    try:
        reply = await server.get("/v1/models")
    except RequestFailed as error:
        raise Unreachable(error.message, hint="it accepts connections, but does not answer") from None
    if reply.status in NOT_READY:
        raise ServerLoading.said_by(server, reply)
    title = page_title(reply.body)
    if reply.status in (401, 403):
        words = error_message(reply.status, reply.body)
        hint = (
            "give the key with --api-key" if reply.status == 401 else "the key given with --api-key may not do this"
        )
        raise Unauthorized(f"{server.url} does not let us in: {words}", hint=hint)
    if title is not None:
        named = f" titled {title!r}" if title else ""
        raise NotAnApi(
            f"{server.url}/v1/models answers with an HTML page{named} (HTTP {reply.status}), not with JSON",
            hint="give the URL of the API itself: what stands before /v1",
        )
    if reply.status == 200 and _model_cards(reply) == [] and not isinstance(reply.json, dict):
        raise NotAnApi(
            f"{server.url}/v1/models does not answer with a list of models, but: {reply.text[:120] or 'nothing'}",
            hint="give the URL of the API itself: what stands before /v1",
        )
    return reply


def _model_cards(reply: Reply) -> list[dict[str, Any]]:
    if reply.status != 200:
        return []
    cards = object_of(reply.json).get("data")
    return [card for card in cards if isinstance(card, dict)] if isinstance(cards, list) else []


async def _engine(
    server: Server, engine: str, cards: list[dict[str, Any]], reply: Reply
) -> tuple[str, str, dict[str, Any]]:
    """The engine's name, what gave it away, and the answers gathered on the way."""
    if engine != "auto":
        found = await ADAPTERS[engine].recognised(server, cards)
        return engine, "named by the user", {} if found is None else found[1]
    owners = [_OWNERS.get(str(card.get("owned_by")), str(card.get("owned_by"))) for card in cards]
    first = [name for name in _ORDER if name in owners]
    for name in dict.fromkeys((*first, *_ORDER)):
        found = await ADAPTERS[name].recognised(server, cards)
        if found is not None:
            return name, found[0], found[1]
    if first:
        return first[0], "owned_by in /v1/models", {}
    if reply.status != 200:
        raise NotAnApi(
            f"{server.url} is no inference API we know: /v1/models says {error_message(reply.status, reply.body)}",
            hint="check the URL (what stands before /v1); name the engine with --engine if it has no model list",
        )
    return "openai", "no answer of an engine we know", {}


def _model_card(cards: list[dict[str, Any]], model: str | None) -> dict[str, Any]:
    """The card of the model that is measured. Raises UsageError when the user must choose."""
    if model is not None:
        return next((card for card in cards if card.get("id") == model), {})
    bases = [card for card in cards if not card.get("parent")] or cards
    if len(bases) > 1:
        names = [str(card.get("id")) for card in bases]
        shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        raise UsageError(f"the server offers {len(names)} models: {shown}", hint="choose one with --model")
    return bases[0] if bases else {}


def _model_doubts(cards: list[dict[str, Any]], model: str | None, reply: Reply) -> tuple[str, ...]:
    if reply.status != 200:
        return (f"no model list: {error_message(reply.status, reply.body)}",)
    if model is not None and cards and all(card.get("id") != model for card in cards):
        names = ", ".join(str(card.get("id")) for card in cards[:8])
        return (f"the server does not list the model {model!r}, but: {names}",)
    return ()
