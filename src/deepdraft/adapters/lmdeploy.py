"""LMDeploy's api_server. Names and traps: docs/reference/servers.md.

Usage always tells cached tokens. Prefix caching is off unless it was asked for, and can't be flushed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.counter import CounterMap, series
from deepdraft.adapters.field import INCLUDE_USAGE
from deepdraft.adapters.json_value import ids_of, object_of, whole
from deepdraft.adapters.prometheus import MetricsPage
from deepdraft.adapters.recognition import has_metrics, is_owned_by
from deepdraft.adapters.server import Server
from deepdraft.records import Capabilities, Ternary
from deepdraft.records.redact import redacted

_CONFIG = "lmdeploy:backend_config_info"


class LmdeployAdapter(Adapter):
    """An LMDeploy server."""

    engine = "lmdeploy"
    optional_fields: ClassVar[Mapping[str, Any]] = {INCLUDE_USAGE: True, "ignore_eos": True}
    exact_length_field = "min_new_tokens"
    obeys_ignore_eos: ClassVar[Ternary] = "yes"
    counter_map = CounterMap(
        counters={
            # generation_tokens is left out: some versions add each iteration's tokens twice.
            "prompt_tokens": (series("lmdeploy:prompt_tokens_total"),),
            "cached_tokens": (series("lmdeploy:cached_tokens_total"),),
            "spec_drafts": (series("lmdeploy:spec_decode_num_drafts_total"),),
            "spec_draft_tokens": (series("lmdeploy:spec_decode_num_draft_tokens_total"),),
            "spec_accepted_tokens": (series("lmdeploy:spec_decode_num_accepted_tokens_total"),),
        },
        num_running=(series("lmdeploy:num_requests_running"),),
        num_waiting=(series("lmdeploy:num_requests_waiting"),),
        gauges={"kv_used_frac": (series("lmdeploy:gpu_cache_usage_perc"),)},
        accepted_at_depth="lmdeploy:spec_decode_num_accepted_tokens_per_pos_total",
        extra_names=(_CONFIG,),
    )

    @classmethod
    async def recognised(cls, server: Server, model_cards: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
        """By `owned_by`, or by `lmdeploy:` families in /metrics beside a JSON status in /health."""
        if is_owned_by(model_cards, "lmdeploy"):
            return "owned_by in /v1/models", {}
        health = await server.try_get("/health")
        tells_status = "status" in object_of(None if health is None else health.json)
        if tells_status and await has_metrics(server, "lmdeploy:"):
            return "GET /health and lmdeploy: families in /metrics", {}
        return None

    async def inspect(self, answers: Mapping[str, Any]) -> Capabilities:
        """From /metrics."""
        self._capabilities = lmdeploy_capabilities(self._capabilities, await self.metrics())
        return self._capabilities

    async def tokenize(self, text: str) -> list[int] | None:
        """By /v1/encode."""
        body = {"input": text, "do_preprocess": False, "add_bos": False}
        return ids_of(object_of(await self._server.try_json("/v1/encode", body)).get("input_ids"))


def lmdeploy_capabilities(known: Capabilities, page: MetricsPage | None) -> Capabilities:
    """What the metrics page tells of the engine's configuration."""
    sample = None if page is None else page.first(_CONFIG)
    labels = {} if sample is None else dict(sample.labels)
    doubts = list(known.doubts)
    if whole(labels.get("session_len")) is None:
        doubts.append("the server does not tell its context limit")
    if page is None:
        doubts.append("no counters: the server runs with --disable-metrics")
    caching = labels.get("enable_prefix_caching")
    speculation: Ternary = "unknown"
    if page is not None and page.has("lmdeploy:spec_decode_num_drafts_total"):
        speculation = "yes"
    return replace(
        known,
        max_context_len=known.max_context_len or whole(labels.get("session_len")),
        page_size=whole(labels.get("cache_block_seq_len")) or whole(labels.get("block_size")),
        num_slots=whole(labels.get("max_batch_size")),
        prefix_cache="yes" if caching == "True" else "no" if caching == "False" else "unknown",
        has_counters="no" if page is None else "yes",
        speculation=speculation,
        settings=redacted(labels),
        doubts=tuple(doubts),
    )
