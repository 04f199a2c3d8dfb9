"""The dialect of SGLang (bytes as recorded from 0.5.23, endpoints and errors as its source has them).

Its traps are kept: speculation figures that move only every `decode_log_interval` decode steps and mean everything
since the last flush, cached tokens in usage only with a server flag, an accept length that counts the prefill's token
as well, a native route that streams cumulative text. What the endpoints tell is in `sglang_state`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any, ClassVar

from deepdraft.simulate.ask import Ask, Refused, Shape
from deepdraft.simulate.dialects.answer import Answer, Endpoint, Query, json_answer, text_answer
from deepdraft.simulate.dialects.body import json_body
from deepdraft.simulate.dialects.openai import OpenAiDialect
from deepdraft.simulate.dialects.sglang_state import metrics_text, model_facts, server_facts
from deepdraft.simulate.dialects.traits import Event
from deepdraft.simulate.engine import Generation, Token
from deepdraft.simulate.truth import TokenKind

_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, "
    "the operation will not be performed.)\n"
)
_NOT_FLUSHED = "Flush cache failed.\n" + _FLUSHED.partition("\n")[2]
_RESERVED_INPUT = 5


class SglangDialect(OpenAiDialect):
    """As SGLang speaks."""

    owned_by: ClassVar[str] = "sglang"
    server_header: ClassVar[str] = "uvicorn"
    public_paths: ClassVar[frozenset[str]] = frozenset({"/health", "/health_generate", "/ping", "/ready", "/metrics"})
    default_continuous_usage: ClassVar[bool] = True
    default_token_ids: ClassVar[bool] = True
    reports_cached_tokens: ClassVar[bool] = False
    finish_rides_on_text: ClassVar[frozenset[Shape]] = frozenset({"completion", "native"})

    # --- endpoints

    def generation_routes(self) -> dict[str, Shape]:
        return {**super().generation_routes(), "/generate": "native"}

    def endpoints(self) -> dict[tuple[str, str], Endpoint]:
        routes: dict[tuple[str, str], Endpoint] = {
            ("GET", "/v1/models"): self.models,
            ("GET", "/health"): self.health,
            ("GET", "/health_generate"): self.health,
            ("GET", "/ping"): self.health,
        }
        for path in ("/model_info", "/get_model_info"):
            routes["GET", path] = self.model_info
        for path in ("/server_info", "/get_server_info"):
            routes["GET", path] = self.server_info
        for method in ("GET", "POST"):
            routes[method, "/flush_cache"] = self.flush_cache
        if self.surface.metrics:
            routes["GET", "/metrics"] = self.metrics
        if self.surface.tokenize:
            routes["POST", "/tokenize"] = routes["POST", "/v1/tokenize"] = self.tokenize
        return routes

    def key_for(self, path: str) -> str | None:
        if path == "/flush_cache" and self.surface.admin_key is not None:
            return self.surface.admin_key
        return super().key_for(path)

    async def health(self, query: Query) -> Answer:
        await asyncio.sleep(self.surface.health_delay_s)
        return text_answer("")

    async def model_info(self, query: Query) -> Answer:
        """What the model is; no lengths."""
        return json_answer(model_facts(self))

    async def server_info(self, query: Query) -> Answer:
        """Arguments, pool, and the state of the scheduler."""
        return json_answer(server_facts(self))

    async def flush_cache(self, query: Query) -> Answer:
        """200 when nothing runs or waits, else 400; with ?timeout=S it waits so long for that."""
        until_s = time.monotonic() + float(query.arguments.get("timeout", 0) or 0)
        while not (is_flushed := self.engine.flush()) and time.monotonic() < until_s:
            await asyncio.sleep(0.01)
        return text_answer(_FLUSHED, 200) if is_flushed else text_answer(_NOT_FLUSHED, 400)

    async def metrics(self, query: Query) -> Answer:
        """Prometheus text."""
        return text_answer(metrics_text(self), content_type="text/plain; version=0.0.4; charset=utf-8")

    async def tokenize(self, query: Query) -> Answer:
        """Token ids of a prompt."""
        try:
            prompt = json_body(query.body).get("prompt")
        except Refused as refused:
            return json_answer(self.error(refused), refused.status)
        if not isinstance(prompt, str):
            return json_answer(self.error(Refused(400, "prompt must be a string", code=400)), 400)
        ids = self.engine.tokenizer.encode(prompt)
        return json_answer({"tokens": ids, "count": len(ids), "max_model_len": self.physics.max_context_len})

    def model_card(self) -> Event:
        return {
            **super().model_card(),
            "root": self.surface.model,
            "parent": None,
            "max_model_len": self.physics.max_context_len,
        }

    # --- errors

    def error(self, refused: Refused, shape: Shape = "chat") -> Event:
        if shape == "native":
            return {"error": {"message": refused.message}}
        return self.error_object(refused)

    def error_object(self, refused: Refused) -> Event:
        kind = "BadRequestError" if refused.status < 500 else "InternalServerError"
        return {
            "object": "error",
            "message": refused.message,
            "type": kind,
            "param": None,
            "code": refused.status,
        }

    def not_found(self, path: str) -> Answer:
        return json_answer({"detail": "Not Found"}, 404)

    def unauthorized(self) -> Answer:
        return json_answer({"error": "Unauthorized"}, 401)

    @property
    def max_input_len(self) -> int:
        """The longest prompt the pool and the context admit."""
        return self.physics.hard_limit_len - 1 - _RESERVED_INPUT

    def check_limits(self, ask: Ask) -> None:
        num_prompt, context_len = len(ask.prompt_ids), self.physics.max_context_len
        if num_prompt >= context_len:
            raise Refused(
                400,
                f"The input ({num_prompt} tokens) is longer than the model's context length ({context_len} tokens).",
            )
        wanted = num_prompt + (ask.max_tokens or 0)
        if wanted > context_len:
            raise Refused(
                400,
                f"Requested token count exceeds the model's maximum context length of {context_len} tokens. "
                f"You requested a total of {wanted} tokens: {num_prompt} tokens from the input messages and "
                f"{ask.max_tokens} tokens for the completion. Please reduce the number of tokens in the input "
                "messages or the completion to fit within the limit.",
            )
        if num_prompt > self.max_input_len:
            raise Refused(
                400,
                f"Input length ({num_prompt} tokens) exceeds the maximum allowed length ({self.max_input_len} "
                "tokens). Use a shorter input or enable --allow-auto-truncate.",
            )

    # --- reading a request

    def extras(self, body: Event) -> dict[str, Any]:
        return {
            "cache_namespace": f"{body.get('cache_salt') or ''}/{body.get('extra_key') or ''}",
            "wants_cached_details": bool(body.get("return_cached_tokens_details", False)),
            "wants_spec_details": bool(body.get("return_spec_tokens_details", False)),
        }

    def ask(self, route: str, shape: Shape, body: Event) -> Ask:
        if shape != "native":
            return super().ask(route, shape, body)
        sampling = body.get("sampling_params") or {}
        plain = {
            **body,
            "prompt": body.get("text") if body.get("text") is not None else body.get("input_ids"),
            "max_tokens": sampling.get("max_new_tokens", 128),
            "min_tokens": sampling.get("min_new_tokens"),
            "ignore_eos": sampling.get("ignore_eos", False),
        }
        return super().ask(route, shape, plain)

    # --- events

    def usage(self, generation: Generation, num_tokens: int, *, is_final: bool = True) -> Event:
        content = super().usage(generation, num_tokens, is_final=is_final)
        num_reasoning = sum(1 for token in generation.output[:num_tokens] if token.kind == "reasoning")
        return {
            "prompt_tokens": content["prompt_tokens"],
            "total_tokens": content["total_tokens"],
            "completion_tokens": num_tokens,
            "prompt_tokens_details": content.get("prompt_tokens_details"),
            "reasoning_tokens": num_reasoning,
            "completion_tokens_details": None,
        }

    def head(self, generation: Generation) -> Event:
        return {**super().head(generation), "id": generation.truth.request_id}

    def choice(self, generation: Generation, content: Event, finish_reason: str | None, is_token: bool) -> Event:
        matched = None if finish_reason != "stop" else 0
        return {**super().choice(generation, content, finish_reason, is_token), "matched_stop": matched}

    def role_event(self, generation: Generation) -> Event:
        delta = {"reasoning_content": None, "role": "assistant", "content": ""}
        return self._event(generation, {"delta": delta})

    def delta(self, kind: TokenKind, text: str, is_first_tool: bool) -> Event:
        return {"reasoning_content": None, **super().delta(kind, text, is_first_tool)}

    def empty_event(self, generation: Generation, content: str | None) -> Event:
        if generation.ask.shape == "native":
            return {"text": content, "output_ids": [], "meta_info": self.meta_info(generation, 0, None)}
        return super().empty_event(generation, content)

    def text_event(
        self, generation: Generation, tokens: Sequence[Token], num_sent: int, finish_reason: str | None
    ) -> Event:
        if generation.ask.shape == "native":
            return self.native_event(generation, num_sent + len(tokens), finish_reason)
        event = super().text_event(generation, tokens, num_sent, finish_reason)
        if generation.ask.shape == "completion":
            event.setdefault("usage", None)
        return event

    def finish_event(self, generation: Generation, usage: Event | None) -> Event:
        event = super().finish_event(generation, usage)
        if generation.ask.shape == "chat":
            event["choices"][0]["delta"] = {"reasoning_content": None}
        return event

    def before_usage_events(self, generation: Generation) -> list[Event]:
        details = self.extension(generation)
        if not details or generation.ask.shape == "native":
            return []
        return [{**self.head(generation), "choices": [], "sglext": details}]

    def extension(self, generation: Generation) -> Event:
        """The `sglext` object that the request asked for; empty when it asked for nothing."""
        details: Event = {}
        if generation.ask.wants_cached_details:
            details["cached_tokens_details"] = self.cached_details(generation)
        if generation.ask.wants_spec_details and self.physics.is_speculative:
            details["spec_tokens_details"] = {
                **self.spec_details(generation),
                "spec_cap_length": 0.0,
                "spec_block_accept_length": 0.0,
                "spec_cap_lens_histogram": [],
            }
        return details

    def cached_details(self, generation: Generation) -> Event:
        """Cached tokens by where they were."""
        return {"device": self.shown_cached(generation.cached_len), "host": 0}

    def spec_details(self, generation: Generation) -> Event:
        """One request's speculation. The accept length divides by steps what includes the prefill's token."""
        steps = generation.truth.steps
        draft_len = self.physics.max_committed_len - 1
        num_correct = sum(step.accepted_len for step in steps)
        num_proposed = draft_len * len(steps)
        histogram = [0] * (draft_len + 1)
        for step in steps:
            histogram[step.accepted_len] += 1
        return {
            "spec_accept_rate": num_correct / num_proposed if num_proposed else 0.0,
            "spec_accept_length": generation.num_made / len(steps) if steps else 0.0,
            "spec_num_correct_drafts": num_correct,
            "spec_num_proposed_drafts": num_proposed,
            "spec_verify_ct": len(steps),
            "spec_correct_drafts_histogram": histogram,
        }

    # --- the native route

    def native_event(self, generation: Generation, num_tokens: int, finish_reason: str | None) -> Event:
        """Text and ids from the start of the answer."""
        made = generation.output[:num_tokens]
        return {
            "text": "".join(token.text for token in made),
            "output_ids": [token.token_id for token in made],
            "meta_info": self.meta_info(generation, num_tokens, finish_reason),
        }

    def meta_info(self, generation: Generation, num_tokens: int, finish_reason: str | None) -> Event:
        """What the native route tells of a request."""
        truth = generation.truth
        to_wall_s = generation.created_s - truth.received_s
        queue_s = generation.prefill_start_s - truth.received_s
        shown_finish: Event | None = None
        if finish_reason == "length":
            shown_finish = {"type": "length", "length": num_tokens}
        elif finish_reason is not None:
            shown_finish = {"type": "stop", "matched": 0}
        content: Event = {
            "id": truth.request_id,
            "finish_reason": shown_finish,
            "prompt_tokens": generation.prompt_len + self.confounds.usage_prompt_offset,
            "weight_version": "default",
            "num_retractions": 0,
            "forward_entry_time": generation.prefill_start_s + to_wall_s,
            "prefill_finished_time": generation.prefill_due_s + to_wall_s,
            "queue_time": queue_s,
            "reasoning_tokens": 0,
            "completion_tokens": num_tokens,
            "cached_tokens": self.shown_cached(generation.cached_len),
            "cached_tokens_details": self.cached_details(generation),
            "dp_rank": None,
        }
        if finish_reason is not None:
            latency_s = time.monotonic() - truth.received_s
            content |= {
                "e2e_latency": latency_s,
                "request_received_ts": generation.created_s,
                "first_token_latency": generation.prefill_due_s - truth.received_s,
                "request_finished_ts": generation.created_s + latency_s,
                "decode_throughput": (num_tokens - 1) / max(1e-9, generation.decode_time_s),
            }
        if self.physics.is_speculative and truth.steps:
            content |= self.spec_details(generation)
        return content

    def full_answer(self, generation: Generation, usage: Event | None) -> Event:
        num_tokens = len(generation.output)
        if generation.ask.shape == "native":
            return self.native_event(generation, num_tokens, generation.finish_reason)
        event = super().full_answer(generation, usage)
        versions = [{"version": "default", "start": 0, "end": num_tokens}]
        event["metadata"] = {"weight_version": "default", "weight_versions": versions}
        if details := self.extension(generation):
            event["sglext"] = details
        return event
