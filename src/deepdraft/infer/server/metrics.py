"""/metrics: the engine's own counts and the times of requests, under the field's names with the prefix `deepdraft:`.

Counters of tokens, pages and preemptions are read from the engine's last `EngineStats`, never counted twice; those of
drafting are `drafting`'s.
Everything is kept in a registry of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from deepdraft.infer.request import Output
from deepdraft.infer.server.drafting import DraftCounts

if TYPE_CHECKING:
    from deepdraft.infer.engine_stats import EngineStats
    from deepdraft.infer.server.engine_thread import StepReport

_PREFIX = "deepdraft:"
_LONG_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560)
_SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10, 20)
_RECENT_WEIGHT = 0.2

# EngineStats field -> (name, what it counts)
_COUNTERS = {
    "num_prompt_tokens_total": (
        ("prompt_tokens", "Prompt tokens of admitted requests, cached ones included"),
        ("prefix_cache_queries", "Prompt tokens looked up in the radix cache"),
    ),
    "num_cached_tokens_total": (
        ("prompt_tokens_cached", "Prompt tokens that the radix cache had"),
        ("prefix_cache_hits", "Prompt tokens found in the radix cache"),
    ),
    "num_completion_tokens_total": (("generation_tokens", "Output tokens"),),
    "num_preemptions_total": (("num_preemptions", "Running requests put back into the queue for want of pages"),),
    "num_moved_pages_total": (("defragmented_pages", "Pages moved by --defragment"),),
    "defragment_s_total": (("defragment_seconds", "Seconds of --defragment, between steps"),),
}


@dataclass(slots=True)
class RequestTimes:
    """Of one engine request; time.monotonic() seconds."""

    arrived_s: float
    first_s: float | None = None
    last_s: float = 0.0
    num_first_tokens: int = 0


class Metrics:
    """What is counted; `page` is the text of /metrics."""

    def __init__(self, *, has_drafter: bool = False) -> None:
        """Without a drafter the page has no family of drafting."""
        self.recent_request_s = 0.0
        """How long requests took lately, from arrival to end."""
        self._registry = CollectorRegistry()
        self._engine = _EngineCollector()
        self._registry.register(self._engine)
        self._drafts = DraftCounts() if has_drafter else None
        if self._drafts is not None:
            self._registry.register(self._drafts)
        ProcessCollector(registry=self._registry)
        self._success = self._counter("request_success", "Requests that ended", "finish_reason")
        self._aborted = self._counter(
            "request_aborted", "Requests dropped: the client went away, or a drain was over"
        )
        self._refused = self._counter("request_refused", "Requests answered with an error", "status")
        self._queue = self._histogram("request_queue_time_seconds", "Request submitted to first admitted", _LONG_S)
        self._ttft = self._histogram("time_to_first_token_seconds", "Request arrived to first output", _LONG_S)
        self._itl = self._histogram("inter_token_latency_seconds", "Between tokens of a request, by token", _SHORT_S)
        self._tpot = self._histogram(
            "request_time_per_output_token_seconds", "Mean seconds a token after the first output", _SHORT_S
        )
        self._e2e = self._histogram("e2e_request_latency_seconds", "Request arrived to last output", _LONG_S)
        self._step = self._histogram("step_seconds", "One step of the engine", _LONG_S, "kind")
        self._step_tokens = self._counter("step_tokens", "Rows of the engine's forward passes", "kind")

    def page(self) -> bytes:
        """Prometheus text format 0.0.4."""
        return generate_latest(self._registry)

    def step(self, report: StepReport) -> None:
        """The engine made a step."""
        self._engine.stats = report.stats
        for record in report.records:
            self._step.labels(record.kind).observe(record.seconds)
            self._step_tokens.labels(record.kind).inc(record.num_tokens)
            if self._drafts is not None:
                self._drafts.add(record)

    def output(self, times: RequestTimes, output: Output, at_s: float) -> None:
        """A step brought something to a request."""
        num_tokens = len(output.token_ids)
        if num_tokens and times.first_s is None:
            times.first_s, times.num_first_tokens = at_s, output.num_output_tokens
            self._ttft.observe(at_s - times.arrived_s)
            if output.queue_s is not None:
                self._queue.observe(output.queue_s)
        elif num_tokens:
            for _ in range(num_tokens):
                self._itl.observe((at_s - times.last_s) / num_tokens)
        if num_tokens:
            times.last_s = at_s
        if output.finish_reason is not None:
            self._finished(times, output, at_s)

    def aborted(self, count: int) -> None:
        """Requests were dropped."""
        self._aborted.inc(count)

    def refused(self, status: int) -> None:
        """An error was answered."""
        self._refused.labels(str(status)).inc()

    def _finished(self, times: RequestTimes, output: Output, at_s: float) -> None:
        self._success.labels(output.finish_reason).inc()
        duration_s = at_s - times.arrived_s
        self._e2e.observe(duration_s)
        self.recent_request_s += _RECENT_WEIGHT * (duration_s - self.recent_request_s)
        num_later_tokens = output.num_output_tokens - times.num_first_tokens
        if times.first_s is not None and num_later_tokens:
            self._tpot.observe((times.last_s - times.first_s) / num_later_tokens)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(_PREFIX + name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(_PREFIX + name, text, labels, buckets=buckets, registry=self._registry)


class _EngineCollector(Collector):
    """The engine's figures as of its last step."""

    def __init__(self) -> None:
        self.stats: EngineStats | None = None

    def collect(self) -> Iterator[Metric]:
        """One family a figure; none before the engine's first word."""
        stats = self.stats
        if stats is None:
            return
        yield GaugeMetricFamily(_PREFIX + "num_requests_running", "Requests being worked on", stats.num_running)
        yield GaugeMetricFamily(_PREFIX + "num_requests_waiting", "Requests waiting for room", stats.num_waiting)
        used = stats.num_pool_pages - stats.num_free_pages - stats.num_evictable_pages
        usage_frac = used / stats.num_pool_pages
        yield GaugeMetricFamily(_PREFIX + "kv_cache_usage_perc", "Pages that requests use, 1 = all", usage_frac)
        pages = GaugeMetricFamily(_PREFIX + "kv_pool_pages", "Pages of the KV pool by state", labels=["state"])
        pages.add_metric(["free"], stats.num_free_pages)
        pages.add_metric(["held"], stats.num_held_pages)
        pages.add_metric(["cached"], stats.num_cached_pages)
        yield pages
        for field, families in _COUNTERS.items():
            for name, text in families:
                yield CounterMetricFamily(_PREFIX + name, text, getattr(stats, field))
