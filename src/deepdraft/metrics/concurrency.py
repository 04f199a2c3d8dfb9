"""How many requests were in flight, exactly, and what they achieved together.

A request is in flight over the half-open interval [sent, end): one that starts when another ends does not overlap it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from deepdraft.metrics.prompt import prompt_tokens
from deepdraft.metrics.tokens import output_tokens
from deepdraft.records import Measurement

Interval = tuple[float, float]


def interval_s(measurement: Measurement) -> Interval | None:
    """When a request was in flight, in seconds since the sweep began; None when its end is unknown."""
    end_s = measurement.trace.end_s
    if end_s is None or end_s < 0:
        return None
    return measurement.started_at_s, measurement.started_at_s + end_s


def intervals_s(measurements: Iterable[Measurement]) -> tuple[Interval, ...]:
    """The intervals of those requests whose end is known."""
    return tuple(interval for interval in map(interval_s, measurements) if interval is not None)


def peak_concurrency(intervals: Sequence[Interval]) -> int:
    """The largest number of requests in flight at one moment. An empty interval is never in flight."""
    # At the same moment ends (-1) sort before starts (+1).
    changes = sorted(
        change for start_s, end_s in intervals if end_s > start_s for change in ((start_s, 1), (end_s, -1))
    )
    peak = running = 0
    for _, change in changes:
        running += change
        peak = max(peak, running)
    return peak


def mean_concurrency(intervals: Sequence[Interval]) -> float | None:
    """Requests in flight, averaged over the time from the first start to the last end; None without any time."""
    span_s = makespan_s(intervals)
    return sum(end_s - start_s for start_s, end_s in intervals) / span_s if span_s else None


def makespan_s(intervals: Sequence[Interval]) -> float | None:
    """First start -> last end; None when there is no interval."""
    if not intervals:
        return None
    return max(end_s for _, end_s in intervals) - min(start_s for start_s, _ in intervals)


def output_tok_s(measurements: Sequence[Measurement]) -> float | None:
    """Output tokens of these requests a second of their makespan: throughput, not the rate one user sees.

    None when a count or an end is missing: a sum over some of the requests is not their throughput.
    """
    return _tok_s(measurements, [output_tokens(measurement.trace) for measurement in measurements])


def total_tok_s(measurements: Sequence[Measurement]) -> float | None:
    """Prompt and output tokens a second of the makespan; cached prompt tokens count, since they were served."""
    sums: list[int | None] = []
    for measurement in measurements:
        prompt, output = prompt_tokens(measurement.trace), output_tokens(measurement.trace)
        sums.append(None if prompt is None or output is None else prompt + output)
    return _tok_s(measurements, sums)


def _tok_s(measurements: Sequence[Measurement], counts: Sequence[int | None]) -> float | None:
    intervals = intervals_s(measurements)
    span_s = makespan_s(intervals)
    known = [count for count in counts if count is not None]
    if not span_s or len(known) < len(counts) or len(intervals) < len(measurements):
        return None
    return sum(known) / span_s
