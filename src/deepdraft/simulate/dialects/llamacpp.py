"""The dialect of llama.cpp's llama-server (bytes as recorded in October 2026).

One event a token, those of one step in a burst; timings in the last event; a native route without [DONE]. What the
state endpoints tell is in `llamacpp_state`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from deepdraft.simulate.ask import Ask, Refused, Shape
from deepdraft.simulate.dialects.answer import Answer, Endpoint, Query, json_answer, text_answer
from deepdraft.simulate.dialects.body import json_body
from deepdraft.simulate.dialects.llamacpp_state import (
    generation_settings,
    metrics_text,
    model_facts,
    props,
    slots,
)
from deepdraft.simulate.dialects.openai import OpenAiDialect
from deepdraft.simulate.dialects.traits import Event
from deepdraft.simulate.engine import Generation, Token
from deepdraft.simulate.spec import EventsPer, UsagePlacement, UsageWhen

_KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    500: "server_error",
    501: "not_supported_error",
    503: "unavailable_error",
}


class LlamaCppDialect(OpenAiDialect):
    """As llama-server speaks."""

    owned_by: ClassVar[str] = "llamacpp"
    server_header: ClassVar[str] = "llama.cpp"
    stream_content_type: ClassVar[str] = "text/event-stream"
    default_completion_tokens: ClassVar[int | None] = None
    public_paths: ClassVar[frozenset[str]] = frozenset({"/health", "/v1/health", "/models", "/v1/models"})
    default_events_per: ClassVar[EventsPer] = "token"

    # --- endpoints

    def generation_routes(self) -> dict[str, Shape]:
        return {
            **super().generation_routes(),
            "/chat/completions": "chat",
            "/completion": "native",
            "/completions": "native",
        }

    def endpoints(self) -> dict[tuple[str, str], Endpoint]:
        routes: dict[tuple[str, str], Endpoint] = {("GET", "/props"): self.props}
        for path in ("/health", "/v1/health"):
            routes["GET", path] = self.health
        for path in ("/models", "/v1/models"):
            routes["GET", path] = self.models
        if self.surface.metrics:
            routes["GET", "/metrics"] = self.metrics
        if self.surface.tokenize:
            routes["POST", "/tokenize"] = self.tokenize
            routes["POST", "/detokenize"] = self.detokenize
            routes["POST", "/apply-template"] = self.apply_template
        if self.surface.slots:
            routes["GET", "/slots"] = self.slots
            for slot_id in range(self.physics.max_running):
                routes["POST", f"/slots/{slot_id}"] = self.erase_slot
        return routes

    async def health(self, query: Query) -> Answer:
        await asyncio.sleep(self.surface.health_delay_s)
        return json_answer({"status": "ok"})

    async def models(self, query: Query) -> Answer:
        return json_answer(model_facts(self))

    async def props(self, query: Query) -> Answer:
        """Default settings, slots, model, build."""
        return json_answer(props(self))

    async def slots(self, query: Query) -> Answer:
        """What each slot does."""
        return json_answer(slots(self))

    async def metrics(self, query: Query) -> Answer:
        """Prometheus text."""
        return text_answer(metrics_text(self), content_type="text/plain; version=0.0.4")

    async def tokenize(self, query: Query) -> Answer:
        """Token ids of `content`."""
        try:
            content = json_body(query.body).get("content", "")
        except Refused as refused:
            return json_answer(self.error(refused), refused.status)
        return json_answer({"tokens": self.engine.tokenizer.encode(str(content))})

    async def detokenize(self, query: Query) -> Answer:
        """Text of `tokens`, as far as the server has seen them."""
        try:
            tokens = json_body(query.body).get("tokens") or []
        except Refused as refused:
            return json_answer(self.error(refused), refused.status)
        return json_answer({"content": self.engine.tokenizer.decode(tokens)})

    async def apply_template(self, query: Query) -> Answer:
        """The prompt that messages become."""
        try:
            pieces = self.chat_pieces(json_body(query.body))
        except Refused as refused:
            return json_answer(self.error(refused), refused.status)
        return json_answer({"prompt": "".join(pieces)})

    async def erase_slot(self, query: Query) -> Answer:
        """POST /slots/{id}?action=erase. All slots share one cache here: any erase empties it."""
        if query.arguments.get("action") != "erase":
            return json_answer(self.error(Refused(501, "This server does not support slots save.")), 501)
        num_erased = self.engine.cache.num_tokens
        if not self.engine.flush():
            return json_answer(self.error(Refused(400, "Slot is busy.")), 400)
        return json_answer({"id_slot": int(query.path.rpartition("/")[2]), "n_erased": num_erased})

    # --- errors

    def error_object(self, refused: Refused) -> Event:
        return {
            "code": refused.status,
            "message": refused.message,
            "type": refused.kind if refused.extra and refused.kind else _KINDS.get(refused.status, "server_error"),
            **refused.extra,
        }

    def not_found(self, path: str) -> Answer:
        return json_answer(self.error(Refused(404, "File Not Found")), 404)

    def unauthorized(self) -> Answer:
        return json_answer(self.error(Refused(401, "Invalid API Key")), 401)

    def check_limits(self, ask: Ask) -> None:
        """Only the prompt is looked at; an answer that reaches the end of the context just ends there."""
        num_prompt, limit = len(ask.prompt_ids), self.physics.hard_limit_len
        if num_prompt >= limit:
            raise Refused(
                400,
                f"request ({num_prompt} tokens) exceeds the available context size ({limit} tokens), try increasing "
                "it",
                kind="exceed_context_size_error",
                extra={"n_prompt_tokens": num_prompt, "n_ctx": limit},
            )

    # --- reading a request

    def max_tokens(self, shape: Shape, body: Event) -> int | None:
        value = body.get("max_completion_tokens") or body.get("max_tokens")
        if value is None:
            value = body.get("n_predict")
        if value is None or value == -1:
            return None
        if not isinstance(value, int) or value < 1:
            raise Refused(400, f"n_predict must be -1 or at least 1, got {value}")
        return value

    def extras(self, body: Event) -> dict[str, Any]:
        return {
            "uses_cache": bool(body.get("cache_prompt", True)),
            "wants_progress": bool(body.get("return_progress", False)),
            "wants_timings": bool(body.get("timings_per_token", False)),
        }

    def text_prompt(self, prompt: Any) -> tuple[list[str] | None, list[int]]:
        if isinstance(prompt, list) and any(isinstance(part, str) for part in prompt) and len(prompt) > 1:
            ids: list[int] = []
            for part in prompt:
                ids += [part] if isinstance(part, int) else self.engine.tokenizer.encode(str(part))
            return None, ids
        return super().text_prompt(prompt)

    # --- what a stream is like

    def sends_done(self, shape: Shape) -> bool:
        return shape != "native"

    def usage_placement(self, shape: Shape) -> UsagePlacement:
        return {"chat": "own_chunk", "completion": "finish_chunk", "native": "absent"}[shape]  # type: ignore[return-value]

    def usage_when(self, shape: Shape) -> UsageWhen:
        return "asked" if shape == "chat" else "always"

    def common_headers(self) -> list[tuple[str, str]]:
        return [("Server", self.server_header), ("Access-Control-Allow-Origin", "")]

    def stream_headers(self, generation: Generation) -> list[tuple[str, str]]:
        return [("X-Accel-Buffering", "no"), *super().stream_headers(generation)]

    # --- events

    def head(self, generation: Generation) -> Event:
        is_chat = generation.ask.shape == "chat"
        return {
            "created": int(generation.created_s),
            "id": "chatcmpl-" + generation.truth.request_id,
            "model": self.surface.model,
            "system_fingerprint": "b0-unknown",
            "object": "chat.completion.chunk" if is_chat else "text_completion",
        }

    def choice(self, generation: Generation, content: Event, finish_reason: str | None, is_token: bool) -> Event:
        if generation.ask.shape == "chat":
            return {"finish_reason": finish_reason, "index": 0, **content}
        return {**content, "index": 0, "logprobs": None, "finish_reason": finish_reason}

    def _event(
        self, generation: Generation, content: Event, finish_reason: str | None = None, *, is_token: bool = False
    ) -> Event:
        choices = [self.choice(generation, content, finish_reason, is_token)]
        return {"choices": choices, **self.head(generation)}

    def role_event(self, generation: Generation) -> Event:
        return self._timed(generation, self._event(generation, {"delta": {"role": "assistant", "content": None}}))

    def empty_event(self, generation: Generation, content: str | None) -> Event:
        if generation.ask.shape == "native":
            return self.native_event(generation, content, [])
        return self._timed(generation, super().empty_event(generation, content))

    def text_event(
        self, generation: Generation, tokens: Sequence[Token], num_sent: int, finish_reason: str | None
    ) -> Event:
        if generation.ask.shape == "native":
            text = "".join(token.text for token in tokens)
            return self.native_event(generation, text, [token.token_id for token in tokens], num_sent + len(tokens))
        event = super().text_event(generation, tokens, num_sent, finish_reason)
        return self._timed(generation, event, num_sent + len(tokens))

    def finish_event(self, generation: Generation, usage: Event | None) -> Event:
        if generation.ask.shape == "native":
            return self.native_end(generation)
        event = super().finish_event(generation, usage)
        has_own_chunk = usage is None and self._has_usage_chunk(generation)
        if not has_own_chunk:
            event["timings"] = self.timings(generation, generation.num_made)
        return event

    def usage_event(self, generation: Generation, usage: Event) -> Event:
        event: Event = {"choices": [], **self.head(generation), "usage": usage}
        event["timings"] = self.timings(generation, generation.num_made)
        return event

    def _has_usage_chunk(self, generation: Generation) -> bool:
        placement = self.confounds.usage_placement
        if placement == "dialect":
            placement = self.usage_placement(generation.ask.shape)
        is_given = generation.ask.wants_usage or self.confounds.usage_when == "always"
        return placement == "own_chunk" and is_given

    def _timed(self, generation: Generation, event: Event, num_tokens: int = 0) -> Event:
        if generation.ask.wants_timings:
            event["timings"] = self.timings(generation, num_tokens)
        return event

    def timings(self, generation: Generation, num_tokens: int) -> Event:
        """The server's own times; `prompt_n` leaves cached tokens out, and no queueing is in `prompt_ms`."""
        is_prefilled = num_tokens > 0
        prompt_n = generation.prompt_len - generation.cached_len if is_prefilled else 0
        prompt_ms = generation.prefill_time_s * 1e3 if is_prefilled else 0.0
        predicted_ms = max(0.001, generation.decode_time_s * 1e3) if is_prefilled else 0.0
        num_after_first = num_tokens - 1
        content: Event = {
            "cache_n": self.shown_cached(generation.cached_len),
            "prompt_n": prompt_n,
            "prompt_ms": prompt_ms,
            "prompt_per_token_ms": prompt_ms / prompt_n if prompt_n else 0.0,
            "prompt_per_second": 1e3 * prompt_n / prompt_ms if prompt_ms else 0.0,
            "predicted_n": num_tokens,
            "predicted_ms": predicted_ms,
            "predicted_per_token_ms": predicted_ms / num_after_first if num_after_first > 0 else 0.0,
            "predicted_per_second": 1e3 * num_after_first / predicted_ms if num_after_first > 0 else 0.0,
        }
        if self.physics.is_speculative and is_prefilled:
            content["draft_n"] = sum(generation.draft_lens)
            content["draft_n_accepted"] = sum(generation.accepted_lens)
        return content

    # --- the native route

    def native_event(self, generation: Generation, content: str | None, ids: list[int], num_tokens: int = 0) -> Event:
        """A chunk of the native route."""
        event: Event = {
            "index": 0,
            "content": content,
            "tokens": ids,
            "stop": False,
            "id_slot": -1,
            "tokens_predicted": num_tokens,
            "tokens_evaluated": generation.prompt_len,
        }
        return self._timed(generation, event, num_tokens)

    def native_end(self, generation: Generation, content: str = "") -> Event:
        """The last chunk of the native route, or its whole answer."""
        num_tokens = generation.num_made
        return {
            "index": 0,
            "content": content,
            "tokens": [],
            "id_slot": 0,
            "stop": True,
            "model": self.surface.model,
            "tokens_predicted": num_tokens,
            "tokens_evaluated": generation.prompt_len,
            "generation_settings": generation_settings(self, generation.ask),
            "prompt": generation.ask.prompt_text,
            "has_new_line": False,
            "truncated": False,
            "stop_type": "limit" if generation.finish_reason == "length" else "eos",
            "stopping_word": "",
            "tokens_cached": generation.prompt_len + num_tokens - 1,
            "timings": self.timings(generation, num_tokens),
        }

    def full_answer(self, generation: Generation, usage: Event | None) -> Event:
        if generation.ask.shape == "native":
            return self.native_end(generation, "".join(token.text for token in generation.output))
        event = super().full_answer(generation, usage)
        event["timings"] = self.timings(generation, generation.num_made)
        return event
