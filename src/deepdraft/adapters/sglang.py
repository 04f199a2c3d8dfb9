"""SGLang, 0.5.12 to 0.5.23. Names and traps: docs/reference/servers.md.

The engine's decode figures move only every --decode-log-interval steps (40 unless set) and are means since the last
flush, so acceptance comes from each answer first: `sglext.spec_tokens_details` on the OpenAI routes (0.5.23, when
asked for), `meta_info` on the native route. Verify steps are also a counter; accepted tokens are not. The same holds
for the gauges of running requests, so the load is asked of the scheduler (`/v1/loads`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from deepdraft.adapters import acceptance as source
from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.body import Wish
from deepdraft.adapters.counter import CounterMap, series
from deepdraft.adapters.field import CONTINUOUS_USAGE, INCLUDE_USAGE, merged
from deepdraft.adapters.flush import flush_refused, flushed
from deepdraft.adapters.json_value import ids_of, object_of, text_of, whole
from deepdraft.adapters.probe import Probe
from deepdraft.adapters.server import Server
from deepdraft.records import Acceptance, Capabilities, ColdStep, RequestTrace, ServerReading, Ternary
from deepdraft.records.redact import REDACTED, redacted

_SECRET_FLAG = re.compile(r"(--(?:[\w-]*-)?(?:api-key|key|password|token|secret)(?:=|\s+))(\S+)")

_HITS = tuple(
    term
    for mode in ("device_hit", "host_hit", "storage_hit")
    for term in series("sglang:prefill_effective_tokens_total", mode=mode)
)
_NATIVE_FIELDS: Mapping[str, Any] = {"extra_key": None, "ignore_eos": True}


_LOAD_PATHS = ("/v1/loads?include=core", "/get_load")
"""Where the scheduler tells its load; the second is 0.5.12's."""


class SglangAdapter(Adapter):
    """An SGLang server."""

    engine = "sglang"
    routes = ("chat", "completions", "native")
    optional_fields: ClassVar[Mapping[str, Any]] = {
        INCLUDE_USAGE: True,
        CONTINUOUS_USAGE: True,
        "ignore_eos": True,
        "cache_salt": None,
        "return_spec_tokens_details": True,
        "return_cached_tokens_details": True,
    }
    exact_length_field = "min_tokens"
    salt_field = "cache_salt"
    obeys_ignore_eos: ClassVar[Ternary] = "yes"
    # /health generates a token and takes at least a second; this asks the scheduler and generates nothing.
    health_path = "/server_info"
    counter_map = CounterMap(
        counters={
            "prompt_tokens": (series("sglang:prompt_tokens_total"),),
            "generation_tokens": (series("sglang:generation_tokens_total"),),
            # The scheduler's own counts first: they exist from the start, the other only after the first hit.
            "cached_tokens": (
                _HITS,
                series("sglang:realtime_tokens_total", mode="prefill_cache"),
                series("sglang:cached_tokens_total"),
            ),
            "num_requests": (series("sglang:num_requests_total"),),
            "spec_drafts": (series("sglang:spec_verify_calls_total"),),
            "num_preemptions": (series("sglang:num_retracted_requests_total"),),
        },
        # Stale for up to --decode-log-interval steps, at 0 through a whole short answer: for versions without loads.
        num_running=(series("sglang:num_running_reqs"), series("sglang:num_running_req")),
        num_waiting=(series("sglang:num_queue_reqs"), series("sglang:num_queue_req")),
        gauges={
            "spec_acceptance_len_recent": (series("sglang:spec_accept_length"),),
            "kv_used_frac": (series("sglang:token_usage"),),
        },
        # Each rank of a tensor or pipeline parallel group may export the same figures; data parallel ranks (dp_rank)
        # have requests of their own.
        repeats=frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"}),
    )

    _decode_log_interval = 40
    _load_path: str | None = None
    """Where the scheduler tells its load."""

    @classmethod
    async def recognised(cls, server: Server, model_cards: list[dict[str, Any]]) -> tuple[str, dict[str, Any]] | None:
        """By `max_total_num_tokens` in /server_info, or /get_server_info of 0.5.12."""
        for path in ("/server_info", "/get_server_info"):
            info = object_of(await server.try_json(path))
            if "max_total_num_tokens" in info or "mem_fraction_static" in info:
                return f"GET {path}", {"server_info": info, "server_info_path": path}
        return None

    async def inspect(self, answers: Mapping[str, Any]) -> Capabilities:
        """From /server_info and the model card."""
        found = sglang_capabilities(self._capabilities, object_of(answers.get("server_info")))
        self._capabilities = found
        self._health_path = str(answers.get("server_info_path") or self.health_path)
        self._decode_log_interval = whole(found.settings.get("decode_log_interval")) or 40
        if found.has_counters == "yes" and await self.metrics() is None:
            self.learn(has_counters="no")
            self.doubt("metrics are enabled, but /metrics does not answer with them")
        for path in _LOAD_PATHS:
            if sglang_load(await self._server.try_json(path), 0.0, path) is not None:
                self._load_path = path
                break
        return self._capabilities

    def body_of(self, route: str, fields: Mapping[str, Any], wish: Wish) -> dict[str, Any]:
        """As OpenAI's, and the native /generate body."""
        if route != "native":
            return super().body_of(route, fields, wish)
        sampling: dict[str, Any] = {"max_new_tokens": wish.max_tokens, "temperature": wish.temperature}
        if "ignore_eos" in fields and not wish.stop_early:
            sampling["ignore_eos"] = True
        if wish.seed is not None:
            sampling["sampling_seed"] = wish.seed
        body: dict[str, Any] = {"text" if isinstance(wish.prompt, str) else "input_ids": wish.prompt}
        body |= {"sampling_params": sampling, "stream": True}
        if wish.cache_salt is not None and not self.setup.keep_cache and "extra_key" in fields:
            body["extra_key"] = wish.cache_salt
        return merged(body, self.setup.extra_body)

    def fields_to_try(self, route: str) -> dict[str, Any]:
        """The native route has names of its own."""
        return dict(_NATIVE_FIELDS) if route == "native" else super().fields_to_try(route)

    async def tokenize(self, text: str) -> list[int] | None:
        """By /tokenize, with /v1/tokenize as the other name."""
        return await self._tokenized(text, add_special_tokens=False)

    async def count_prompt(self, text: str) -> int | None:
        """Only for raw prompts: no route applies the chat template without generating."""
        if self.endpoint == "chat":
            return None
        ids = await self._tokenized(text, add_special_tokens=True)
        return None if ids is None else len(ids)

    async def _tokenized(self, text: str, *, add_special_tokens: bool) -> list[int] | None:
        body = {"model": self._capabilities.model or "", "prompt": text, "add_special_tokens": add_special_tokens}
        for path in ("/tokenize", "/v1/tokenize"):
            ids = ids_of(object_of(await self._server.try_json(path, body)).get("tokens"))
            if ids is not None:
                return ids
        return None

    async def flush(self) -> ColdStep:
        """POST /flush_cache. 400 means that requests were running or queued: not done."""
        return await flushed(self._server, "/flush_cache", flush_refused)

    async def reading(self, at_s: float) -> ServerReading | None:
        """Counters from /metrics and the load from the scheduler, where there are such; with speculation also the
        server's own mean from /server_info."""
        found = await super().reading(at_s)
        if self._load_path is not None:
            path = self._load_path.partition("?")[0]
            found = _combined(found, sglang_load(await self._server.try_json(self._load_path), at_s, path))
        if self._capabilities.speculation == "yes" and self._capabilities.reports_acceptance != "yes":
            info = await self._server.try_json(self._health_path)
            if info is not None:
                found = found or ServerReading(at_s=at_s, source=self._health_path)
            mean = sglang_mean_acceptance_len(info)
            if found is not None and mean is not None:
                found = replace(found, gauges={**found.gauges, "spec_acceptance_len": mean})
        return found

    def stated_acceptance(self, trace: RequestTrace) -> Acceptance | None:
        """From sglext.spec_tokens_details or meta_info."""
        completion = None if trace.usage is None else trace.usage.completion_tokens
        details = object_of(object_of(trace.server_fields.get("sglext")).get("spec_tokens_details"))
        meta_info = object_of(trace.server_fields.get("meta_info"))
        return source.of_sglang_figures(details or meta_info, completion)

    def observe(self, probe: Probe) -> None:
        """A server with a drafter states its counts in every answer, where it can at all."""
        super().observe(probe)
        if self._capabilities.speculation == "yes" and self._capabilities.reports_acceptance != "yes":
            self.learn(reports_acceptance="no")
            self.doubt("answers don't state acceptance on this route (older than 0.5.23): --endpoint native does")
        if self._capabilities.reports_cached_tokens == "no":
            self.doubt(
                "answers tell cached tokens only of hits, and nothing of none: the server runs without "
                "--enable-cache-report (--endpoint native needs no flag, counters tell with --enable-metrics)"
            )

    def cached_tokens_reported(self, trace: RequestTrace) -> bool:
        """In usage with --enable-cache-report, on the native route always; in sglext, when asked for, only if there
        was a hit."""
        details = object_of(trace.server_fields.get("sglext")).get("cached_tokens_details")
        return super().cached_tokens_reported(trace) or isinstance(details, dict)

    def _gauge_acceptance(self, before: ServerReading | None, after: ServerReading) -> Acceptance | None:
        return source.of_gauge(before, after, self._decode_log_interval)


def sglang_capabilities(known: Capabilities, info: Mapping[str, Any]) -> Capabilities:
    """What /server_info tells. `known`: engine, model and context limit from elsewhere."""
    states = [state for state in info.get("internal_states") or [] if isinstance(state, dict)]
    state = states[0] if states else {}
    slots = [whole(entry.get("effective_max_running_requests_per_dp")) for entry in states]
    num_slots = sum(slot for slot in slots if slot) or whole(info.get("max_running_requests"))
    algorithm = info.get("speculative_algorithm")
    has_metrics = info.get("enable_metrics")
    doubts = list(known.doubts)
    pool = whole(info.get("max_total_num_tokens")) or whole(
        object_of(state.get("memory_usage")).get("token_capacity")
    )
    if has_metrics is False:
        doubts.append("no counters: the server runs without --enable-metrics")
    if info.get("allow_auto_truncate"):
        doubts.append("the server shortens prompts that are too long without saying so (--allow-auto-truncate)")
    interval = whole(info.get("decode_log_interval")) or 40
    if algorithm and interval > 1:
        doubts.append(
            f"the server's own acceptance figures move only every {interval} decode steps (--decode-log-interval)"
        )
    if len(states) > 1:
        doubts.append(f"{len(states)} data parallel ranks, each with a KV pool of its own")
    return replace(
        known,
        version=text_of(info.get("version")) or known.version,
        model=known.model or text_of(info.get("served_model_name")) or text_of(info.get("model_path")),
        tokenizer=text_of(info.get("tokenizer_path")),
        max_context_len=known.max_context_len or whole(info.get("context_length")),
        kv_pool_tokens=pool,
        page_size=whole(info.get("page_size")),
        max_prompt_len=whole(info.get("max_req_input_len")),
        num_slots=num_slots,
        cold_means=("flush", "cache_salt"),
        prefix_cache=_opposite(info.get("disable_radix_cache")),
        reports_cached_tokens="yes" if info.get("enable_cache_report") else "unknown",
        has_counters="unknown" if has_metrics is None else "yes" if has_metrics else "no",
        speculation="unknown" if "speculative_algorithm" not in info else "yes" if algorithm else "no",
        speculation_method=text_of(algorithm),
        settings=sglang_settings(info, state),
        doubts=tuple(doubts),
    )


def sglang_settings(info: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """The effective configuration, secrets removed; of the scheduler's state only what is measured there."""
    kept = {key: value for key, value in info.items() if key not in ("internal_states", "cuda_graph_config")}
    for key in ("memory_usage", "effective_max_running_requests_per_dp", "step_time_dict"):
        if key in state:
            kept[key] = state[key]
    if isinstance(kept.get("launch_command"), str):
        kept["launch_command"] = _SECRET_FLAG.sub(rf"\1{REDACTED}", kept["launch_command"])
    result: dict[str, Any] = redacted(kept)
    return result


def sglang_load(loads: Any, at_s: float, path: str) -> ServerReading | None:
    """Running and waiting requests from /v1/loads ({"loads": [...]}) or /get_load (a list), summed over ranks.

    A request in the middle of a chunked prefill is neither running nor waiting there; its tokens still to be computed
    give it away, and it counts as running. Newer versions also count the prompt tokens that were computed, on servers
    without metrics too: the counter uncached_prompt_tokens.
    """
    ranks = loads.get("loads") if isinstance(loads, dict) else loads
    if not isinstance(ranks, list) or not ranks:
        return None
    running = [whole(object_of(rank).get("num_running_reqs"), 0) for rank in ranks]
    waiting = [whole(object_of(rank).get("num_waiting_reqs"), 0) for rank in ranks]
    if None in waiting:
        return None
    num_waiting = sum(count for count in waiting if count is not None)
    if None in running:  # /get_load tells all requests and the waiting ones
        totals = [whole(object_of(rank).get("num_reqs"), 0) for rank in ranks]
        if None in totals:
            return None
        num_running = sum(count for count in totals if count is not None) - num_waiting
    else:
        num_running = sum(count for count in running if count is not None)
        num_running += sum(1 for rank in ranks if _prefills_a_chunk(rank))
    uncached = [whole(object_of(rank).get("total_prefill_uncached_tokens"), 0) for rank in ranks]
    known = [count for count in uncached if count is not None]
    return ServerReading(
        at_s=at_s,
        source=path,
        num_running=max(0, num_running),
        num_waiting=num_waiting,
        counters={"uncached_prompt_tokens": float(sum(known))} if len(known) == len(ranks) else {},
    )


def _prefills_a_chunk(rank: Any) -> bool:
    figures = object_of(rank)
    is_idle = not figures.get("num_running_reqs") and not figures.get("num_waiting_reqs")
    return is_idle and bool(whole(figures.get("num_waiting_uncached_tokens")))


def sglang_mean_acceptance_len(info: Any) -> float | None:
    """avg_spec_accept_length of /server_info, mean over ranks; absent until a verify step was counted."""
    states = object_of(info).get("internal_states") or []
    means = [state.get("avg_spec_accept_length") for state in states if isinstance(state, dict)]
    numbers = [float(mean) for mean in means if isinstance(mean, int | float) and mean > 0]
    return sum(numbers) / len(numbers) if numbers else None


def _combined(found: ServerReading | None, load: ServerReading | None) -> ServerReading | None:
    if found is None or load is None:
        return found or load
    return replace(
        found,
        source=f"{found.source} and {load.source}",
        num_running=load.num_running,
        num_waiting=load.num_waiting,
        counters={**load.counters, **found.counters},
    )


def _opposite(value: Any) -> Ternary:
    return "unknown" if value is None else "no" if value else "yes"
