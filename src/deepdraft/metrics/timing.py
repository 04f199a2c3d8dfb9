"""Latencies of one request by the definitions of docs/concepts/figures.md. Each returns None when it can't be known.

Events that arrive together (one read, or one burst: see `burst`) count as one arrival. Tokens that came *with* the
first arrival are not divided into time that started *after* it, and a gap inside a burst is no token time.
"""

from __future__ import annotations

from deepdraft.metrics.burst import Bursts, bursts_of
from deepdraft.metrics.event import e2el_s, token_times_s, ttft_s
from deepdraft.metrics.tokens import EventTokens, event_tokens, num_token_events
from deepdraft.records import Measurement, RequestTrace
from deepdraft.stats import median


def arrival_tokens(bursts: Bursts, counts: tuple[int, ...]) -> tuple[int, ...]:
    """Tokens of each burst, from the tokens of each event."""
    if len(bursts.num_events) == len(counts):
        return counts
    tokens: list[int] = []
    place = 0
    for size in bursts.num_events:
        tokens.append(sum(counts[place : place + size]))
        place += size
    return tuple(tokens)


def tpot_s(trace: RequestTrace) -> float | None:
    """Time per output token: (last arrival - first arrival) / tokens that came after the first arrival.

    Prefill takes no part in it, nor does what follows the last token (usage, [DONE]). None when fewer than two
    arrivals carried tokens, or when nobody counted them.
    """
    counted = event_tokens(trace)
    bursts = bursts_of(token_times_s(trace))
    if counted.counts is None or len(bursts.ends_s) < 2:
        return None
    num_after = sum(arrival_tokens(bursts, counted.counts)[1:])
    span_s = bursts.ends_s[-1] - bursts.ends_s[0]
    return span_s / num_after if num_after > 0 and span_s > 0 else None


def tpot_bounds_s(trace: RequestTrace) -> tuple[float, float] | None:
    """The smallest and the largest `tpot_s` that the server's total allows; both equal when the counts are exact.

    The first arrival of b events may hold b tokens at least and total - (other events) at most: each event carries
    text, so it holds a token. (With fewer tokens than events it may hold 0 to b.) None when `tpot_s` is None.
    """
    tpot = tpot_s(trace)
    counted = event_tokens(trace)
    if tpot is None or counted.total is None or counted.counts is None:
        return None
    if counted.is_exact:
        return tpot, tpot
    bursts = bursts_of(token_times_s(trace))
    num_first, num_events = bursts.num_events[0], num_token_events(trace)
    span_s = bursts.ends_s[-1] - bursts.ends_s[0]
    if counted.total >= num_events:
        fewest, most = num_first, counted.total - (num_events - num_first)
    else:
        fewest, most = 0, min(num_first, counted.total - 1)
    return span_s / (counted.total - fewest), span_s / max(counted.total - most, 1)


def num_decode_tokens(trace: RequestTrace) -> int | None:
    """Tokens that `tpot_s` rests on: those that came after the first arrival."""
    counted = event_tokens(trace)
    if counted.counts is None:
        return None
    return sum(arrival_tokens(bursts_of(token_times_s(trace)), counted.counts)[1:])


def decode_tok_s(trace: RequestTrace) -> float | None:
    """1 / `tpot_s`: tokens a second while decoding, prefill left out."""
    tpot = tpot_s(trace)
    return 1 / tpot if tpot else None


def itls_s(trace: RequestTrace) -> tuple[tuple[float, int], ...] | None:
    """Inter-token latencies as (seconds a token, tokens), one for each arrival after the first: its gap to the
    arrival before, divided by the tokens it brought. An arrival without a token passes its gap on to the next.

    The raw gap is not a token time: a step that commits four tokens takes one gap for all four. None when nobody
    counted the tokens.
    """
    counted = event_tokens(trace)
    if counted.counts is None:
        return None
    bursts = bursts_of(token_times_s(trace))
    return _itls(bursts, counted)


def _itls(bursts: Bursts, counted: EventTokens) -> tuple[tuple[float, int], ...]:
    latencies: list[tuple[float, int]] = []
    since_s: float | None = None
    for end_s, num_tokens in zip(bursts.ends_s, arrival_tokens(bursts, counted.counts or ()), strict=True):
        if since_s is None:
            since_s = end_s
        elif num_tokens:
            latencies.append(((end_s - since_s) / num_tokens, num_tokens))
            since_s = end_s
    return tuple(latencies)


def itl_s(trace: RequestTrace) -> float | None:
    """The typical inter-token latency of a request: the median over its tokens after the first arrival."""
    latencies = itls_s(trace)
    if not latencies:
        return None
    return median([latency for latency, num_tokens in latencies for _ in range(num_tokens)])


def peak_tok_s(trace: RequestTrace) -> float | None:
    """The highest decode rate between two arrivals; never below the mean rate `decode_tok_s`."""
    latencies = itls_s(trace)
    fastest = min((latency for latency, _ in latencies), default=0.0) if latencies else 0.0
    return 1 / fastest if fastest > 0 else None


def send_lag_s(measurement: Measurement) -> float | None:
    """Scheduled -> sent, for an open-loop schedule; None without one."""
    if measurement.scheduled_at_s is None:
        return None
    return measurement.started_at_s - measurement.scheduled_at_s


def ttft_from_scheduled_s(measurement: Measurement) -> float | None:
    """TTFT from when the schedule wanted the request sent, so that a late sender can't hide a queue."""
    return _from_scheduled(measurement, ttft_s(measurement.trace))


def e2el_from_scheduled_s(measurement: Measurement) -> float | None:
    """End-to-end latency from when the schedule wanted the request sent."""
    return _from_scheduled(measurement, e2el_s(measurement.trace))


def _from_scheduled(measurement: Measurement, latency_s: float | None) -> float | None:
    lag_s = send_lag_s(measurement)
    return None if lag_s is None or latency_s is None else latency_s + lag_s
