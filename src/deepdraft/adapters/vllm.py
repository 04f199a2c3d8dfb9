"""vLLM, 0.32 and around. Names and traps: docs/reference/servers.md.

Counters are always on; cached tokens and acceptance in the answers need server flags. The prefix cache can be reset
only in dev mode; a cache salt always works.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from deepdraft.adapters import acceptance as source
from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.counter import CounterMap, series
from deepdraft.adapters.field import CONTINUOUS_USAGE, INCLUDE_USAGE
from deepdraft.adapters.flush import flushed
from deepdraft.adapters.json_value import object_of, whole
from deepdraft.adapters.probe import Probe
from deepdraft.adapters.prometheus import MetricsPage
from deepdraft.adapters.recognition import has_metrics, is_owned_by, stated_version
from deepdraft.adapters.server import Reply, Server
from deepdraft.adapters.tokenize_route import prompt_len, token_ids
from deepdraft.records import Acceptance, Capabilities, ColdStep, RequestTrace, Ternary
from deepdraft.records.redact import redacted

_CACHE_CONFIG = "vllm:cache_config_info"
_METHOD = re.compile(r"SpeculativeConfig\(method='([^']+)'")


class VllmAdapter(Adapter):
    """A vLLM server."""

    engine = "vllm"
    optional_fields: ClassVar[Mapping[str, Any]] = {
        INCLUDE_USAGE: True,
        CONTINUOUS_USAGE: True,
        "ignore_eos": True,
        "cache_salt": None,
    }
    exact_length_field = "min_tokens"
    salt_field = "cache_salt"
    obeys_ignore_eos: ClassVar[Ternary] = "yes"
    counter_map = CounterMap(
        counters={
            "prompt_tokens": (series("vllm:prompt_tokens_total"),),
            "generation_tokens": (series("vllm:generation_tokens_total"),),
            "cached_tokens": (series("vllm:prompt_tokens_cached_total"), series("vllm:prefix_cache_hits_total")),
            "num_requests": (series("vllm:request_success_total"),),
            "spec_drafts": (series("vllm:spec_decode_num_drafts_total"),),
            "spec_draft_tokens": (series("vllm:spec_decode_num_draft_tokens_total"),),
            "spec_accepted_tokens": (series("vllm:spec_decode_num_accepted_tokens_total"),),
            "num_preemptions": (series("vllm:num_preemptions_total"),),
        },
        num_running=(series("vllm:num_requests_running"),),
        num_waiting=(series("vllm:num_requests_waiting"),),
        gauges={"kv_used_frac": (series("vllm:kv_cache_usage_perc"), series("vllm:gpu_cache_usage_perc"))},
        accepted_at_depth="vllm:spec_decode_num_accepted_tokens_per_pos_total",
        extra_names=(_CACHE_CONFIG,),  # the label `engine` tells data parallel engines apart: they are added up
    )

    @classmethod
    async def recognised(cls, server: Server, model_cards: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
        """By `owned_by`, or by `vllm:` families in /metrics beside a /version."""
        version = await stated_version(server)
        if is_owned_by(model_cards, "vllm"):
            return "owned_by in /v1/models", {"version": version}
        if version is not None and await has_metrics(server, "vllm:"):
            return "GET /version and vllm: families in /metrics", {"version": version}
        return None

    async def inspect(self, answers: Mapping[str, Any]) -> Capabilities:
        """From /metrics and, in dev mode, /server_info."""
        page = await self.metrics()
        info = await self._server.try_json("/server_info?config_format=json")
        found = replace(self._capabilities, version=answers.get("version") or self._capabilities.version)
        self._capabilities = vllm_capabilities(found, page, info)
        return self._capabilities

    async def tokenize(self, text: str) -> list[int] | None:
        """By /tokenize."""
        return await token_ids(self._server, self._capabilities.model, text)

    async def count_prompt(self, text: str) -> int | None:
        """By /tokenize, with the chat template on the chat route."""
        model = self._capabilities.model
        return await prompt_len(self._server, model, text, is_chat=self.endpoint == "chat")

    async def flush(self) -> ColdStep | None:
        """POST /reset_prefix_cache (dev mode). `{"success": false}`: blocks are still held, not done. Older versions
        answer 200 without a body and don't say whether it worked."""
        if "flush" not in self._capabilities.cold_means:
            return None
        return await flushed(self._server, "/reset_prefix_cache", _is_held)

    def stated_acceptance(self, trace: RequestTrace) -> Acceptance | None:
        """From metrics.speculative_decoding, with --per-request-spec-decode-metrics."""
        return source.of_vllm_metrics(object_of(trace.server_fields.get("metrics")))

    def observe(self, probe: Probe) -> None:
        """What the answers lack, a server flag would add."""
        super().observe(probe)
        if self._capabilities.reports_cached_tokens == "no":
            self.doubt("answers don't tell cached tokens: the server runs without --enable-prompt-tokens-details")
        if self._capabilities.speculation == "yes" and self._capabilities.reports_acceptance != "yes":
            self.learn(reports_acceptance="no")
            self.doubt("answers don't state acceptance: --per-request-spec-decode-metrics would; counters do")


def _is_held(reply: Reply) -> bool:
    return reply.status == 200 and object_of(reply.json).get("success") is False


def vllm_capabilities(known: Capabilities, page: MetricsPage | None, info: Any) -> Capabilities:
    """What the metrics page and the dev-mode /server_info tell."""
    sample = None if page is None else page.first(_CACHE_CONFIG)
    labels = {} if sample is None else {key: value for key, value in sample.labels.items() if value != "None"}
    engines = 0 if page is None else len(page.samples.get(_CACHE_CONFIG, ()))
    block_size, num_blocks = whole(labels.get("block_size")), whole(labels.get("num_gpu_blocks"))
    pool = whole(labels.get("kv_cache_size_tokens"))
    if pool is None and block_size and num_blocks:
        pool = block_size * num_blocks
    config = object_of(info).get("vllm_config")
    is_dev_mode = config is not None
    speculation: Ternary = "unknown"
    if page is not None:
        speculation = "yes" if page.has("vllm:spec_decode_num_drafts_total") else "no"
    method = _speculation_method(config)
    doubts = list(known.doubts)
    if engines > 1:
        doubts.append(f"{engines} data parallel engines, each with a KV pool of its own")
    if not is_dev_mode:
        doubts.append("the prefix cache can't be reset: the server runs without VLLM_SERVER_DEV_MODE=1")
    settings: dict[str, Any] = {"cache_config": labels} if labels else {}
    if config is not None:
        settings["vllm_config"] = config
    return replace(
        known,
        kv_pool_tokens=pool,
        page_size=block_size,
        num_slots=_deep(config, "scheduler_config", "max_num_seqs"),
        cold_means=("flush", "cache_salt") if is_dev_mode else ("cache_salt",),
        prefix_cache=_ternary(labels.get("enable_prefix_caching")),
        has_counters="no" if page is None else "yes",
        speculation="yes" if method else speculation,
        speculation_method=method,
        simulates_acceptance=_simulates_acceptance(config),
        settings=redacted(settings),
        doubts=tuple(doubts),
    )


def _speculation_method(config: Any) -> str | None:
    """From the configuration as JSON, or as the text that versions without config_format write."""
    if isinstance(config, str):
        match = _METHOD.search(config)
        return match[1] if match else None
    method = object_of(object_of(config).get("speculative_config")).get("method")
    return method if isinstance(method, str) else None


def _simulates_acceptance(config: Any) -> Ternary:
    """By `rejection_sample_method` of a configuration that is told as JSON."""
    speculative = object_of(config).get("speculative_config")
    if not isinstance(speculative, dict) or "rejection_sample_method" not in speculative:
        return "unknown"
    return "yes" if speculative["rejection_sample_method"] == "synthetic" else "no"


def _deep(config: Any, *names: str) -> int | None:
    for name in names:
        config = object_of(config).get(name)
    return whole(config)


def _ternary(text: str | None) -> Ternary:
    return "yes" if text == "True" else "no" if text == "False" else "unknown"
