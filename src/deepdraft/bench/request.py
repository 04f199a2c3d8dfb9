"""Sends one measured request and records it, whatever becomes of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from deepdraft.adapters.body import Wish
from deepdraft.adapters.reading import carries_output, event_texts, trace_in_slices
from deepdraft.bench import needle
from deepdraft.bench.cold import cache_salt
from deepdraft.bench.limits import first_token_limit_s, stall_limit_s
from deepdraft.bench.prompt import Prompt
from deepdraft.bench.session import Session
from deepdraft.bench.who_counts import TextTokenizer
from deepdraft.errors import RequestFailed, ServerError, Stalled
from deepdraft.metrics import ttft_s
from deepdraft.records import EventLog, Failure, Measurement, PromptFacts, RequestTrace
from deepdraft.transport.connection import Connection
from deepdraft.transport.exchange import Exchange, TimeLimits

Role = Literal["single", "first", "second"]

_MAX_COUNTED_EVENTS = 512
"""Above this many events only the first and the whole answer are given to the tokenizer: the first event decides the
token time, the rest is spread by characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request to be sent, encoded before the clock starts."""

    trial_id: str
    context_len: int
    request_index: int
    role: Role
    is_warmup: bool
    prompt: Prompt
    max_tokens: int
    path: str
    body: bytes
    num_others: int = 0
    """Requests that may be in flight beside it, for the time limits."""
    is_repeat: bool = False
    """The prompt was sent before, on purpose (keep_cache): its head is not unique."""


def encoded(
    session: Session,
    prompt: Prompt,
    *,
    trial_id: str,
    request_index: int,
    role: Role,
    is_warmup: bool,
    max_tokens: int,
    num_others: int,
) -> Ask:
    """The request for a prompt."""
    spec = session.spec
    wish = Wish(
        prompt=prompt.text if prompt.text is not None else list(prompt.ids or ()),
        max_tokens=max_tokens,
        cache_salt=None if spec.keep_cache else cache_salt(session.adapter),
        temperature=spec.temperature,
        seed=spec.seed if spec.temperature > 0 else None,
        stop_early=spec.needle_depth is not None,
    )
    path, body = session.adapter.request_body(wish)
    return Ask(
        trial_id=trial_id,
        context_len=prompt.asked_len,
        request_index=request_index,
        role=role,
        is_warmup=is_warmup,
        prompt=prompt,
        max_tokens=max_tokens,
        path=path,
        body=body,
        num_others=num_others,
        is_repeat=spec.keep_cache,
    )


async def connected(session: Session) -> Connection:
    """A connection of its own for one request, opened before its clock starts."""
    return await session.client.open()


async def measured(
    session: Session,
    ask: Ask,
    connection: Connection,
    *,
    attempt: int = 0,
    scheduled_at_s: float | None = None,
    active: list[Exchange] | None = None,
) -> Measurement:
    """Send the request and wait for its end; a failure is recorded, not raised.

    active: the trial's exchanges under way; this one is in it while it runs, for the progress line.
    Raises asyncio.CancelledError only; the connection is then closed at once.
    """
    limits = session.spec.limits
    seen = tuple(session.seen_ttft.items())
    exchange: Exchange | None = None
    error: ServerError | Stalled | None = None
    try:
        exchange = connection.stream(
            ask.path,
            ask.body,
            limits=TimeLimits(
                first_event_limit_s=first_token_limit_s(limits, ask.context_len, ask.num_others, seen),
                stall_limit_s=stall_limit_s(limits, ask.context_len, ask.num_others),
                total_limit_s=limits.request_s,
            ),
            is_output=carries_output,
        )
        if active is not None:
            active.append(exchange)
        await exchange.wait_end()
    except (ServerError, Stalled) as caught:
        error = caught
    finally:
        if exchange is not None and active is not None and exchange in active:
            active.remove(exchange)
        connection.abort()
    if exchange is None:
        assert error is not None
        return unsent(session, ask, error, attempt, scheduled_at_s)
    trace, failure = await trace_in_slices(exchange, connect_s=connection.connect_s, error=error)
    if failure is None:
        trace = await _with_tokenizer_counts(session, exchange, trace)
    return Measurement(
        trial_id=ask.trial_id,
        request_index=ask.request_index,
        attempt=attempt,
        role=ask.role,
        is_warmup=ask.is_warmup,
        started_at_s=exchange.sent_at - session.started_at,
        scheduled_at_s=scheduled_at_s,
        max_tokens=ask.max_tokens,
        prompt=_facts(ask),
        trace=trace,
        failure=failure,
        needle_found=_needle_found(ask.prompt, trace) if failure is None else None,
    )


def unsent(
    session: Session, ask: Ask, error: ServerError | Stalled, attempt: int, scheduled_at_s: float | None
) -> Measurement:
    """The record of a request for which there was no connection."""
    return Measurement(
        trial_id=ask.trial_id,
        request_index=ask.request_index,
        attempt=attempt,
        role=ask.role,
        is_warmup=ask.is_warmup,
        started_at_s=session.now_s(),
        scheduled_at_s=scheduled_at_s,
        max_tokens=ask.max_tokens,
        prompt=_facts(ask),
        trace=RequestTrace(),
        failure=Failure(name=type(error).__name__, message=error.message),
    )


def is_transient(measurement: Measurement) -> bool:
    """Whether trying again may help: the request failed before its first token, for a reason that passes."""
    failure = measurement.failure
    if failure is None or ttft_s(measurement.trace) is not None:
        return False
    if failure.http_status is not None:
        return failure.http_status in (408, 425, 429) or failure.http_status >= 500
    return failure.name in ("Unreachable", "ServerLost", "StreamEndedEarly")


def _facts(ask: Ask) -> PromptFacts:
    return replace(ask.prompt.facts, head=None) if ask.is_repeat else ask.prompt.facts


def _needle_found(prompt: Prompt, trace: RequestTrace) -> bool | None:
    if prompt.needle is None:
        return None
    return needle.check(trace.output_text or "", prompt.needle)


async def _with_tokenizer_counts(session: Session, exchange: Exchange, trace: RequestTrace) -> RequestTrace:
    """Let a tokenizer count the text of each event, where the server's counts don't tell how many tokens it holds."""
    log = trace.events
    if session.output_tokenizer is None or log.num_tokens is not None or not log.num_chars:
        return trace
    stated = trace.usage.completion_tokens if trace.usage is not None else None
    if stated == len(log.num_chars):
        return trace  # as many events as tokens: one each
    source, count = session.output_tokenizer
    texts = event_texts(exchange)
    if len(texts) != len(log.num_chars):
        return trace
    try:
        counts = await _cumulative_counts(texts, count)
    except (RequestFailed, ServerError):
        return trace  # the figures then rest on the characters, and say so
    return replace(trace, events=_with_counts(log, counts, source))


async def _cumulative_counts(texts: Sequence[str], count: TextTokenizer) -> tuple[int, ...]:
    """Tokens that each text adds, counted on the text so far: a word may be cut across two events."""
    if len(texts) > _MAX_COUNTED_EVENTS:
        first, total = await count(texts[0]), await count("".join(texts))
        return (first, *_spread(total - first, [len(text) for text in texts[1:]]))
    counts, so_far, before = [], "", 0
    for text in texts:
        so_far += text
        total = await count(so_far)
        counts.append(max(0, total - before))
        before = max(before, total)
        await asyncio.sleep(0)
    return tuple(counts)


def _spread(total: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers that sum to `total`, in proportion to the weights."""
    sum_weights = sum(weights) or 1
    result, given, weight_so_far = [], 0, 0
    for weight in weights:
        weight_so_far += weight
        upto = round(total * weight_so_far / sum_weights)
        result.append(max(0, upto - given))
        given = max(given, upto)
    return result


def _with_counts(log: EventLog, counts: tuple[int, ...], source: str) -> EventLog:
    return replace(log, tokenizer_tokens=counts, tokenizer_source=source)
