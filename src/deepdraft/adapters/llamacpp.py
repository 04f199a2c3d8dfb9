"""llama.cpp's llama-server. Names and traps: docs/reference/servers.md.

Every answer ends with `timings` (tokens computed and cached, milliseconds, drafted and accepted tokens). A prompt is
reused from its slot and, by default, from a cache in host memory that erasing a slot does not clear: the request's
`cache_prompt: false` is what makes it cold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from deepdraft.adapters import acceptance as source
from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.counter import CounterMap, series
from deepdraft.adapters.field import INCLUDE_USAGE
from deepdraft.adapters.json_value import ids_of, object_of, whole
from deepdraft.adapters.server import NOT_READY, Server, ServerLoading
from deepdraft.records import Acceptance, Capabilities, RequestTrace, ServerReading, Ternary
from deepdraft.records.redact import redacted


class LlamacppAdapter(Adapter):
    """A llama-server."""

    engine = "llamacpp"
    optional_fields: ClassVar[Mapping[str, Any]] = {
        INCLUDE_USAGE: True,
        "ignore_eos": True,
        "cache_prompt": False,
        "timings_per_token": True,  # the count of tokens with each event
        "return_progress": True,  # signs of life while a long prompt is read
    }
    obeys_ignore_eos: ClassVar[Ternary] = "yes"
    counter_map = CounterMap(
        counters={
            # prompt_tokens_total leaves cached tokens out; ours has them in, as in other engines.
            "prompt_tokens": (
                series("llamacpp:prompt_tokens_total") + series("llamacpp:prompt_tokens_cached_total"),
            ),
            "cached_tokens": (series("llamacpp:prompt_tokens_cached_total"),),
            "generation_tokens": (series("llamacpp:tokens_predicted_total"),),
            "spec_drafts": (series("llamacpp:spec_decode_num_drafts_total"),),
            "spec_draft_tokens": (series("llamacpp:spec_decode_num_draft_tokens_total"),),
            "spec_accepted_tokens": (series("llamacpp:spec_decode_num_accepted_tokens_total"),),
        },
        num_running=(series("llamacpp:requests_processing"),),
        num_waiting=(series("llamacpp:requests_deferred"),),
        accepted_at_depth="llamacpp:spec_decode_num_accepted_tokens_per_pos_total",
    )

    @classmethod
    async def recognised(cls, server: Server, model_cards: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
        """By /props, else by `owned_by` (a server without --props still answers GET)."""
        reply = await server.try_get("/props")
        props = object_of(None if reply is None or reply.status != 200 else reply.json)
        if "default_generation_settings" in props:
            return "GET /props", {"props": props, "model_cards": model_cards}
        if any(card.get("owned_by") == "llamacpp" for card in model_cards):
            if reply is not None and reply.status in NOT_READY:  # it lists its model before it has loaded it
                raise ServerLoading.said_by(server, reply)
            return "owned_by in /v1/models", {"model_cards": model_cards}
        return None

    async def inspect(self, answers: Mapping[str, Any]) -> Capabilities:
        """From /props and the model card; /metrics and /slots are tried."""
        cards = answers.get("model_cards") or []
        card = next((card for card in cards if card.get("id") == self._capabilities.model), cards[0] if cards else {})
        self._capabilities = llamacpp_capabilities(self._capabilities, object_of(answers.get("props")), card)
        if await self.metrics() is None:
            self.learn(has_counters="no")
            self.doubt("no counters: the server runs without --metrics")
        else:
            self.learn(has_counters="yes")
        return self._capabilities

    async def tokenize(self, text: str) -> list[int] | None:
        """By /tokenize, special tokens in the text read as the server reads them in a prompt."""
        return await self._tokenized(text, add_special=False)

    async def count_prompt(self, text: str) -> int | None:
        """By /apply-template and /tokenize."""
        if self.endpoint == "chat":
            messages = {"messages": [{"role": "user", "content": text}]}
            prompt = object_of(await self._server.try_json("/apply-template", messages)).get("prompt")
            if not isinstance(prompt, str):
                return None
            text = prompt
        ids = await self._tokenized(text, add_special=True)
        return None if ids is None else len(ids)

    async def _tokenized(self, text: str, *, add_special: bool) -> list[int] | None:
        body = {"content": text, "add_special": add_special, "parse_special": True}
        return ids_of(object_of(await self._server.try_json("/tokenize", body)).get("tokens"))

    async def reading(self, at_s: float) -> ServerReading | None:
        """From /metrics, else the load from /slots."""
        found = await super().reading(at_s)
        if found is None or found.num_running is None:
            load = llamacpp_load(await self._server.try_json("/slots"), at_s)
            if found is None or load is None:
                return load or found
            return replace(found, num_running=load.num_running, source=f"{found.source} and {load.source}")
        return found

    def stated_acceptance(self, trace: RequestTrace) -> Acceptance | None:
        """From timings."""
        return source.of_llamacpp_timings(object_of(trace.server_fields.get("timings")))

    def cached_tokens_reported(self, trace: RequestTrace) -> bool:
        """In usage and in timings.cache_n."""
        return super().cached_tokens_reported(trace) or "cache_n" in object_of(trace.server_fields.get("timings"))


def llamacpp_capabilities(known: Capabilities, props: Mapping[str, Any], card: Mapping[str, Any]) -> Capabilities:
    """What /props and the model card tell. n_ctx is the context of one slot."""
    defaults = object_of(props.get("default_generation_settings"))
    meta = object_of(card.get("meta"))
    slot_len = whole(defaults.get("n_ctx")) or whole(meta.get("n_ctx"))
    num_slots = whole(props.get("total_slots"))
    kinds = object_of(defaults.get("params")).get("speculative.types")
    if kinds is None:
        kinds = object_of(defaults.get("params")).get("speculative.type")
    doubts = list(known.doubts)
    if num_slots is not None and num_slots > 1:
        doubts.append(
            f"whether the {num_slots} slots share one KV cache is not told: how much fits at once is unknown"
        )
    if props.get("is_sleeping"):
        doubts.append("the server sleeps: the first request wakes it up and is slow")
    settings = {key: value for key, value in props.items() if key not in ("chat_template", "ui_settings")}
    if meta:
        settings["model_meta"] = dict(meta)
    speculation: Ternary = "unknown"
    if isinstance(kinds, str) and kinds:
        speculation = "no" if kinds == "none" else "yes"
    build, path = props.get("build_info"), props.get("model_path")
    return replace(
        known,
        version=build if isinstance(build, str) and build else known.version,
        model=known.model or (props.get("model_alias") if isinstance(props.get("model_alias"), str) else None),
        tokenizer=path if isinstance(path, str) and path else None,
        max_context_len=slot_len,
        kv_pool_tokens=slot_len if num_slots == 1 else None,
        num_slots=num_slots,
        cold_means=("cache_prompt",),
        reports_acceptance=speculation,
        speculation=speculation,
        speculation_method=kinds if speculation == "yes" else None,
        settings=redacted(settings),
        doubts=tuple(doubts),
    )


def llamacpp_load(slots: Any, at_s: float) -> ServerReading | None:
    """Busy slots from /slots."""
    if not isinstance(slots, list) or not all(isinstance(slot, dict) and "is_processing" in slot for slot in slots):
        return None
    return ServerReading(at_s=at_s, source="/slots", num_running=sum(1 for slot in slots if slot["is_processing"]))
