"""Our own server, `deepdraft serve`, read over HTTP like any other. Names and traps: docs/reference/servers.md.

Every answer tells its cached tokens and every event its tokens, without a flag; with a drafter the usage also tells
what was drafted and accepted and where the rounds' time went. Context limit and pool are two figures of /server_info,
and a request must fit both. Nothing is imported from the server's code: what it is comes out
of its answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from deepdraft.adapters import acceptance as source
from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.counter import CounterMap, series
from deepdraft.adapters.flush import flush_refused, flushed
from deepdraft.adapters.json_value import object_of, text_of, whole
from deepdraft.adapters.server import Server
from deepdraft.adapters.tokenize_route import prompt_len, token_ids
from deepdraft.records import Acceptance, Capabilities, ColdStep, RequestTrace, Ternary
from deepdraft.records.redact import redacted

_STATE = "state"
"""What of /server_info changes from moment to moment: no setting."""
_WHEN = {"auto": " where it pays", "never": ", never used"}


class DeepdraftAdapter(Adapter):
    """A `deepdraft serve`."""

    engine = "deepdraft"
    exact_length_field = "min_tokens"
    obeys_ignore_eos: ClassVar[Ternary] = "yes"
    counter_map = CounterMap(
        counters={
            "prompt_tokens": (series("deepdraft:prompt_tokens_total"),),
            "cached_tokens": (series("deepdraft:prompt_tokens_cached_total"),),
            "generation_tokens": (series("deepdraft:generation_tokens_total"),),
            "num_requests": (series("deepdraft:request_success_total"),),
            "num_preemptions": (series("deepdraft:num_preemptions_total"),),
            "spec_drafts": (series("deepdraft:spec_decode_num_drafts_total"),),
            "spec_draft_tokens": (series("deepdraft:spec_decode_num_draft_tokens_total"),),
            "spec_accepted_tokens": (series("deepdraft:spec_decode_num_accepted_tokens_total"),),
        },
        num_running=(series("deepdraft:num_requests_running"),),
        num_waiting=(series("deepdraft:num_requests_waiting"),),
        gauges={
            "kv_used_frac": (series("deepdraft:kv_cache_usage_perc"),),
            "spec_acceptance_len_recent": (series("deepdraft:spec_decode_acceptance_len"),),
        },
        accepted_at_depth="deepdraft:spec_decode_num_accepted_tokens_per_pos_total",
    )

    @classmethod
    async def recognised(cls, server: Server, model_cards: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
        """By `engine` in /server_info."""
        info = object_of(await server.try_json("/server_info"))
        return ("GET /server_info", {"server_info": info}) if info.get("engine") == "deepdraft" else None

    async def inspect(self, answers: Mapping[str, Any]) -> Capabilities:
        """From /server_info; /metrics is tried."""
        self._capabilities = deepdraft_capabilities(self._capabilities, object_of(answers.get("server_info")))
        self.learn(has_counters="no" if await self.metrics() is None else "yes")
        return self._capabilities

    async def tokenize(self, text: str) -> list[int] | None:
        """By /tokenize."""
        return await token_ids(self._server, self._capabilities.model, text)

    async def count_prompt(self, text: str) -> int | None:
        """By /tokenize, with the chat template on the chat route."""
        model = self._capabilities.model
        return await prompt_len(self._server, model, text, is_chat=self.endpoint == "chat")

    async def flush(self) -> ColdStep:
        """POST /flush_cache. 400 means that requests were running or waiting: not done."""
        return await flushed(self._server, "/flush_cache", flush_refused)

    def stated_acceptance(self, trace: RequestTrace) -> Acceptance | None:
        """From usage.speculation, which is there whenever a drafter is."""
        return source.of_deepdraft_usage(object_of(trace.server_fields.get("speculation")))


def deepdraft_capabilities(known: Capabilities, info: Mapping[str, Any]) -> Capabilities:
    """What /server_info tells; what it leaves out stays unknown."""
    radix_cache = info.get("has_radix_cache")
    speculation = _speculation(info)
    drafting = object_of(info.get("speculation"))
    simulated_len = drafting.get("simulate_acceptance_len")
    simulates: Ternary = "no" if speculation == "no" else "unknown"
    if "simulate_acceptance_len" in drafting:
        simulates = "no" if simulated_len is None else "yes"
    doubts = known.doubts
    if simulates == "yes":
        doubts += (
            f"accepted lengths are simulated (--simulate-acceptance-len {simulated_len}): no drafter's result",
        )
    return replace(
        known,
        version=text_of(info.get("version")) or known.version,
        model=known.model or text_of(info.get("model")),
        tokenizer=text_of(info.get("model_path")),
        max_context_len=whole(info.get("max_context_len")) or known.max_context_len,
        kv_pool_tokens=whole(info.get("kv_pool_tokens")),
        page_size=whole(info.get("page_size")),
        num_slots=whole(info.get("max_running_requests")),
        cold_means=("flush",),
        prefix_cache="unknown" if radix_cache is None else "yes" if radix_cache else "no",
        speculation=speculation,
        speculation_method=_method(drafting),
        simulates_acceptance=simulates,
        doubts=doubts,
        settings=redacted({name: value for name, value in info.items() if name != _STATE}),
    )


def _speculation(info: Mapping[str, Any]) -> Ternary:
    """`speculation` is null without a drafter and says how it drafts with one."""
    if "speculation" not in info:
        return "unknown"
    return "no" if info["speculation"] is None else "yes"


def _method(drafting: Mapping[str, Any]) -> str | None:
    """The drafter's method, and what of its drafts is verified: `dflash tree of 16`, `dflash chain of 7`; and when,
    unless at every step: `ngram where it pays`."""
    method = text_of(drafting.get("method"))
    budget, top_k = whole(drafting.get("tree_budget")), whole(drafting.get("tree_top_k"))
    when = _WHEN.get(str(drafting.get("mode")), "")
    if method is None or method == "ngram" or budget is None or top_k is None:
        return method and method + when
    if top_k > 1:
        return f"{method} tree of {budget}{when}"
    return f"{method} chain of {min(budget, whole(drafting.get('draft_len')) or budget)}{when}"
