"""The dialect of vLLM (bytes as recorded from 0.32.0, endpoints and errors as its source has them).

Cached tokens in usage, per-request metrics, the cache reset and the server info are each behind a switch, as there.
What /metrics and /server_info hold is in `vllm_state`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, ClassVar

from deepdraft.simulate.ask import Ask, Refused, Shape
from deepdraft.simulate.dialects.answer import Answer, Endpoint, Query, json_answer, text_answer
from deepdraft.simulate.dialects.body import json_body
from deepdraft.simulate.dialects.openai import OpenAiDialect
from deepdraft.simulate.dialects.traits import Event
from deepdraft.simulate.dialects.vllm_state import VERSION, metrics_text, server_facts
from deepdraft.simulate.engine import Generation, Token

_FINGERPRINT = f"vllm-{VERSION}-0cd85c33"
_MAX_SALT_CHARS = 1024


class VllmDialect(OpenAiDialect):
    """As vLLM speaks."""

    owned_by: ClassVar[str] = "vllm"
    server_header: ClassVar[str] = "uvicorn"
    default_continuous_usage: ClassVar[bool] = True
    default_token_ids: ClassVar[bool] = True
    reports_cached_tokens: ClassVar[bool] = False
    finish_rides_on_text: ClassVar[frozenset[Shape]] = frozenset({"chat", "completion"})

    # --- endpoints

    def endpoints(self) -> dict[tuple[str, str], Endpoint]:
        routes: dict[tuple[str, str], Endpoint] = {
            ("GET", "/v1/models"): self.models,
            ("GET", "/health"): self.health,
            ("GET", "/ping"): self.health,
            ("POST", "/ping"): self.health,
            ("GET", "/version"): self.version,
        }
        if self.surface.metrics:
            routes["GET", "/metrics"] = self.metrics
        if self.surface.tokenize:
            routes["POST", "/tokenize"] = self.tokenize
        if self.surface.dev_mode:
            routes["GET", "/server_info"] = self.server_info
            routes["POST", "/reset_prefix_cache"] = self.reset_prefix_cache
        return routes

    def key_for(self, path: str) -> str | None:
        return self.surface.api_key if path.startswith("/v1") else None

    async def health(self, query: Query) -> Answer:
        await asyncio.sleep(self.surface.health_delay_s)
        return text_answer("")

    async def version(self, query: Query) -> Answer:
        """The engine's version."""
        return json_answer({"version": VERSION})

    async def metrics(self, query: Query) -> Answer:
        """Prometheus text."""
        return text_answer(metrics_text(self), content_type="text/plain; version=1.0.0; charset=utf-8")

    async def server_info(self, query: Query) -> Answer:
        """The engine's configuration, as text or (config_format=json) as objects."""
        return json_answer(server_facts(self, as_json=query.arguments.get("config_format") == "json"))

    async def reset_prefix_cache(self, query: Query) -> Answer:
        """Says whether it was done."""
        return json_answer({"success": self.engine.flush()})

    async def tokenize(self, query: Query) -> Answer:
        """Token ids of a prompt, or of messages with the chat template."""
        try:
            body = json_body(query.body)
            shape: Shape = "chat" if "messages" in body else "completion"
            _, ids = self.prompt(shape, body)
        except Refused as refused:
            return json_answer(self.error(refused), refused.status)
        return json_answer(
            {
                "count": len(ids),
                "max_model_len": self.physics.max_context_len,
                "tokens": ids,
                "token_strs": None,
            }
        )

    def model_card(self) -> Event:
        created = int(self.engine.started_at_s)
        permission = {
            "id": "modelperm-8c32a0946f73c459",
            "object": "model_permission",
            "created": created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        return {
            **super().model_card(),
            "root": f"/models/{self.surface.model}",
            "parent": None,
            "max_model_len": self.physics.max_context_len,
            "permission": [permission],
        }

    # --- errors

    def error_object(self, refused: Refused) -> Event:
        return {
            "message": refused.message,
            "type": "BadRequestError" if refused.status < 500 else "InternalServerError",
            "param": None,
            "code": refused.status,
        }

    def not_found(self, path: str) -> Answer:
        return json_answer({"detail": "Not Found"}, 404)

    def unauthorized(self) -> Answer:
        return json_answer({"error": "Unauthorized"}, 401)

    def check_limits(self, ask: Ask) -> None:
        num_prompt, limit = len(ask.prompt_ids), self.physics.max_context_len
        if num_prompt >= limit:
            raise Refused(
                400,
                f"This model's maximum context length is {limit} tokens. However, your prompt contains {num_prompt} "
                "input tokens. Please reduce the length of the input prompt.",
            )
        wanted = num_prompt + (ask.max_tokens or 0)
        if wanted > limit:
            raise Refused(
                400,
                f"This model's maximum context length is {limit} tokens. However, you requested {ask.max_tokens} "
                f"output tokens and your prompt contains {num_prompt} input tokens, for a total of {wanted} tokens. "
                "Please reduce the length of the input prompt or the number of requested output tokens.",
            )
        # The engine itself refuses to start with a pool smaller than its context; this is its own wording.
        if num_prompt >= self.physics.kv_pool_tokens:
            raise Refused(
                400,
                f"The decoder prompt (length {num_prompt}) is longer than the maximum model length of "
                f"{self.physics.kv_pool_tokens}.",
            )

    # --- reading a request

    def extras(self, body: Event) -> dict[str, Any]:
        salt = body.get("cache_salt")
        if salt is not None and not (isinstance(salt, str) and 1 <= len(salt) <= _MAX_SALT_CHARS):
            raise Refused(400, "Parameter 'cache_salt' must be a non-empty string of at most 1024 characters.")
        return {"cache_namespace": salt or ""}

    # --- events

    def usage(self, generation: Generation, num_tokens: int, *, is_final: bool = True) -> Event:
        content = super().usage(generation, num_tokens, is_final=is_final)
        ordered: Event = {
            "prompt_tokens": content["prompt_tokens"],
            "total_tokens": content["total_tokens"],
            "completion_tokens": num_tokens,
        }
        if "prompt_tokens_details" in content:
            ordered["prompt_tokens_details"] = content["prompt_tokens_details"]
        return ordered

    def head(self, generation: Generation) -> Event:
        is_chat = generation.ask.shape == "chat"
        return {
            **super().head(generation),
            "id": ("chatcmpl-" if is_chat else "cmpl-") + generation.truth.request_id[:16],
        }

    def choice(self, generation: Generation, content: Event, finish_reason: str | None, is_token: bool) -> Event:
        choice = super().choice(generation, content, finish_reason, is_token)
        if generation.ask.shape == "completion":
            return {**choice, "stop_reason": None, "prompt_token_ids": None, "token_ids": None}
        if finish_reason is not None:
            choice["stop_reason"] = None
        if is_token:
            choice["token_ids"] = None
        return choice

    def role_event(self, generation: Generation) -> Event:
        event = super().role_event(generation)
        wants_ids = generation.ask.wants_token_ids
        event["prompt_token_ids"] = generation.ask.prompt_ids if wants_ids else None
        event["prompt_text"] = None
        if generation.ask.wants_continuous_usage:
            event["usage"] = self.usage(generation, 0, is_final=False)
        return event

    def text_event(
        self, generation: Generation, tokens: Sequence[Token], num_sent: int, finish_reason: str | None
    ) -> Event:
        event = super().text_event(generation, tokens, num_sent, finish_reason)
        if generation.ask.shape == "chat":
            # There the prompt's ids come with the role.
            event["choices"][0].pop("prompt_token_ids", None)
        return event

    def usage_event(self, generation: Generation, usage: Event) -> Event:
        event = super().usage_event(generation, usage)
        event["system_fingerprint"] = _FINGERPRINT
        if self.surface.per_request_metrics:
            event["metrics"] = self.request_metrics(generation)
        return event

    def request_metrics(self, generation: Generation) -> Event:
        """What the engine measured of one request, from its scheduling on."""
        num_tokens = generation.num_made
        generation_s = max(1e-9, generation.decode_time_s)
        content: Event = {
            "time_to_first_token_ms": generation.prefill_time_s * 1e3,
            "generation_time_ms": generation_s * 1e3,
            "queue_time_ms": (generation.prefill_start_s - generation.truth.received_s) * 1e3,
            "mean_itl_ms": generation_s * 1e3 / max(1, num_tokens - 1),
            "tokens_per_second": num_tokens / (generation.prefill_time_s + generation_s),
        }
        if self.surface.spec_decode_metrics != "none" and self.physics.is_speculative:
            content["speculative_decoding"] = self.speculation(generation)
        return content

    def speculation(self, generation: Generation) -> Event:
        """One request's speculation."""
        num_drafts = len(generation.draft_lens)
        num_accepted, num_drafted = sum(generation.accepted_lens), sum(generation.draft_lens)
        histogram = [0] * self.physics.max_committed_len
        for accepted_len in generation.accepted_lens:
            histogram[accepted_len] += 1
        content: Event = {
            "mean_acceptance_length": 1 + num_accepted / num_drafts if num_drafts else 0.0,
            "draft_acceptance_rate": num_accepted / num_drafted if num_drafted else 0.0,
            "acceptance_histogram": histogram,
            "num_spec_steps": num_drafts,
            "num_accepted_draft_tokens": num_accepted,
            "num_draft_tokens": num_drafted,
            "num_spec_tokens": self.physics.max_committed_len - 1,
        }
        if self.surface.spec_decode_metrics == "detailed":
            content["per_step_accepted"] = list(generation.accepted_lens)
            content["per_step_drafted"] = list(generation.draft_lens)
        return content

    def full_answer(self, generation: Generation, usage: Event | None) -> Event:
        event = super().full_answer(generation, usage)
        if generation.ask.shape == "chat":
            event["choices"][0]["message"].setdefault("reasoning", None)
        event["system_fingerprint"] = _FINGERPRINT
        event["metrics"] = self.request_metrics(generation) if self.surface.per_request_metrics else None
        if usage is not None:
            usage.setdefault("prompt_tokens_details", None)
            usage["completion_tokens_details"] = None
        return event
