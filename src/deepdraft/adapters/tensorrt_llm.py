"""TensorRT-LLM's trtllm-serve. Names and traps: docs/reference/servers.md.

Bodies with unknown fields are refused. /metrics is JSON and hands each iteration's figures out once, to whoever asks
first; /prometheus/metrics does not. Both are there only when the server was started with its performance figures on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from deepdraft.adapters import acceptance as source
from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.counter import CounterMap, series
from deepdraft.adapters.field import CONTINUOUS_USAGE, INCLUDE_USAGE
from deepdraft.adapters.json_value import object_of, whole
from deepdraft.adapters.prometheus import MetricsPage
from deepdraft.adapters.recognition import has_metrics, is_owned_by, stated_version
from deepdraft.adapters.server import Server
from deepdraft.records import Acceptance, Capabilities, RequestTrace, ServerReading, Ternary
from deepdraft.records.redact import redacted

_CONFIGS = ("model", "parallel", "speculative", "kv_cache")


class TensorrtLlmAdapter(Adapter):
    """A trtllm-serve server."""

    engine = "tensorrt_llm"
    optional_fields: ClassVar[Mapping[str, Any]] = {INCLUDE_USAGE: True, CONTINUOUS_USAGE: True, "ignore_eos": True}
    exact_length_field = "min_tokens"
    obeys_ignore_eos: ClassVar[Ternary] = "yes"
    metrics_path = "/prometheus/metrics"
    counter_map = CounterMap(
        counters={
            "prompt_tokens": (series("trtllm_prompt_tokens_total"),),
            "generation_tokens": (series("trtllm_generation_tokens_total"),),
            "cached_tokens": (
                series("trtllm_prompt_cached_tokens_total"),
                series("trtllm_prompt_cache_hit_tokens_total"),
            ),
            "num_requests": (
                series("trtllm_request_success_total"),
                series("trtllm_num_requests_completed_total"),
            ),
            # Two families count the same tokens in the newest version: the first that exists is taken, not both.
            "spec_draft_tokens": (
                series("trtllm_spec_decode_num_draft_tokens_total"),
                series("trtllm_spec_decode_drafted_tokens_total"),
            ),
            "spec_accepted_tokens": (
                series("trtllm_spec_decode_num_accepted_tokens_total"),
                series("trtllm_spec_decode_accepted_tokens_total"),
            ),
        },
        num_running=(series("trtllm_num_requests_running"),),
        num_waiting=(series("trtllm_num_requests_waiting"),),
        gauges={"kv_used_frac": (series("trtllm_kv_cache_utilization"),)},
        extra_names=(
            "trtllm_kv_cache_max_blocks",
            "trtllm_kv_cache_tokens_per_block",
            "trtllm_max_batch_size_runtime",
            *(f"trtllm_{name}_config_info" for name in _CONFIGS),
        ),
    )

    @classmethod
    async def recognised(cls, server: Server, model_cards: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
        """By `owned_by`, or by `trtllm_` families in /prometheus/metrics beside a /version."""
        version = await stated_version(server)
        if is_owned_by(model_cards, "tensorrt_llm"):
            return "owned_by in /v1/models", {"version": version}
        if version is not None and await has_metrics(server, "trtllm_", cls.metrics_path):
            return "GET /version and trtllm_ families in /prometheus/metrics", {"version": version}
        return None

    async def inspect(self, answers: Mapping[str, Any]) -> Capabilities:
        """From /prometheus/metrics, /server_info, and one look at /metrics."""
        page = await self.metrics()
        known = replace(self._capabilities, version=answers.get("version"))
        info = object_of(await self._server.try_json("/server_info"))
        iterations = None if page is not None and page.has("trtllm_kv_cache_max_blocks") else await self._iteration()
        self._capabilities = tensorrt_llm_capabilities(known, page, info, object_of(iterations))
        return self._capabilities

    async def reading(self, at_s: float) -> ServerReading | None:
        """From /prometheus/metrics, else the load from the newest iteration in /metrics."""
        found = await super().reading(at_s)
        if found is not None and found.num_running is not None:
            return found
        load = tensorrt_llm_load(object_of(await self._iteration()), at_s)
        if found is None or load is None:
            return load or found
        return replace(found, num_running=load.num_running, num_waiting=load.num_waiting)

    async def _iteration(self) -> Any:
        """The newest iteration's figures; None when there are none (no iteration since the last look, or off)."""
        iterations = await self._server.try_json("/metrics")
        return iterations[-1] if isinstance(iterations, list) and iterations else None

    def stated_acceptance(self, trace: RequestTrace) -> Acceptance | None:
        """From choices[].avg_decoded_tokens_per_iter."""
        return source.of_tensorrt_figure(trace.server_fields.get("avg_decoded_tokens_per_iter"))


def tensorrt_llm_capabilities(
    known: Capabilities, page: MetricsPage | None, info: Mapping[str, Any], iteration: Mapping[str, Any]
) -> Capabilities:
    """What the metrics pages and /server_info tell. The context limit is told nowhere."""
    settings: dict[str, Any] = dict(info)
    if page is not None:
        for name in _CONFIGS:
            sample = page.first(f"trtllm_{name}_config_info")
            if sample is not None:
                settings[f"{name}_config"] = dict(sample.labels)
    cache = object_of(iteration.get("kvCacheStats"))
    page_size = _figure(page, "trtllm_kv_cache_tokens_per_block") or whole(cache.get("tokensPerBlock"))
    num_blocks = _figure(page, "trtllm_kv_cache_max_blocks") or whole(cache.get("maxNumBlocks"))
    doubts = [*known.doubts, "the server does not tell its context limit"]
    if page is None:
        doubts.append("no counters: the server runs without performance figures (return_perf_metrics)")
    speculative = object_of(settings.get("speculative_config"))
    method = next(
        (speculative[key] for key in ("spec_method", "decoding_type", "method") if speculative.get(key)), None
    )
    if method in ("none", "None"):
        method = None
    speculation: Ternary = "yes" if method else "no" if speculative else "unknown"
    return replace(
        known,
        kv_pool_tokens=page_size * num_blocks if page_size and num_blocks else None,
        page_size=page_size,
        num_slots=_figure(page, "trtllm_max_batch_size_runtime") or whole(iteration.get("maxNumActiveRequests")),
        prefix_cache=_reuse(object_of(settings.get("kv_cache_config")).get("enable_block_reuse")),
        has_counters="no" if page is None else "yes",
        speculation=speculation,
        speculation_method=method,
        settings=redacted(settings),
        doubts=tuple(doubts),
    )


def tensorrt_llm_load(iteration: Mapping[str, Any], at_s: float) -> ServerReading | None:
    """Running and queued requests of one iteration."""
    num_running = whole(iteration.get("numActiveRequests"), 0)
    if num_running is None:
        return None
    return ServerReading(
        at_s=at_s,
        source="/metrics (newest iteration)",
        num_running=num_running,
        num_waiting=whole(iteration.get("numQueuedRequests"), 0),
    )


def _figure(page: MetricsPage | None, name: str) -> int | None:
    values = () if page is None else page.values(name)
    return whole(values[0]) if values else None


def _reuse(label: Any) -> Ternary:
    return "unknown" if label is None else "yes" if str(label).lower() == "true" else "no"
