"""Text Generation Inference, by its OpenAI routes. Names and traps: docs/reference/servers.md.

It has no ignore_eos, tells no cached tokens, and its counters say neither drafts nor acceptance of one request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.counter import CounterMap, series
from deepdraft.adapters.field import INCLUDE_USAGE
from deepdraft.adapters.json_value import object_of, whole
from deepdraft.adapters.server import Server
from deepdraft.records import Capabilities, Ternary
from deepdraft.records.redact import redacted


class TgiAdapter(Adapter):
    """A TGI server."""

    engine = "tgi"
    optional_fields: ClassVar[Mapping[str, Any]] = {INCLUDE_USAGE: True}
    counter_map = CounterMap(
        counters={
            "prompt_tokens": (series("tgi_request_input_length_sum"),),
            "generation_tokens": (series("tgi_request_generated_tokens_sum"),),
            "num_requests": (series("tgi_request_success"),),
            "spec_accepted_tokens": (series("tgi_request_skipped_tokens_sum"),),
        },
        num_running=(series("tgi_batch_current_size"),),
        num_waiting=(series("tgi_queue_size"),),
    )

    @classmethod
    async def recognised(cls, server: Server, model_cards: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
        """By /info."""
        info = object_of(await server.try_json("/info"))
        if "max_total_tokens" in info and "model_id" in info:
            return "GET /info", {"info": info}
        return None

    async def inspect(self, answers: Mapping[str, Any]) -> Capabilities:
        """From /info."""
        self._capabilities = tgi_capabilities(self._capabilities, object_of(answers.get("info")))
        self.learn(has_counters="no" if await self.metrics() is None else "yes")
        return self._capabilities

    async def tokenize(self, text: str) -> list[int] | None:
        """By /tokenize."""
        tokens = await self._server.try_json("/tokenize", {"inputs": text, "add_special_tokens": False})
        if not isinstance(tokens, list):
            return None
        ids = [whole(object_of(token).get("id"), 0) for token in tokens]
        return None if None in ids else [token_id for token_id in ids if token_id is not None]


def tgi_capabilities(known: Capabilities, info: Mapping[str, Any]) -> Capabilities:
    """What /info tells."""
    version, model = info.get("version"), info.get("model_id")
    speculate = info.get("speculate")
    speculation: Ternary = "unknown"
    if isinstance(speculate, int):
        speculation = "yes" if speculate > 0 else "no"
    return replace(
        known,
        version=version if isinstance(version, str) else None,
        model=known.model or (model if isinstance(model, str) else None),
        max_context_len=whole(info.get("max_total_tokens")),
        kv_pool_tokens=whole(info.get("max_batch_total_tokens")),
        max_prompt_len=whole(info.get("max_input_tokens")) or whole(info.get("max_input_length")),
        num_slots=whole(info.get("max_concurrent_requests")),
        speculation=speculation,
        settings=redacted(dict(info)),
        doubts=(*known.doubts, "whether prefixes are cached is not told (PREFIX_CACHING=0 turns it off)"),
    )
