"""From an exchange to the RequestTrace that is kept, and to the verdict whether the request succeeded.

The trace holds what was seen, also when the request failed. The verdict leaves out what other rooms judge (a short
answer, a cache hit, a truncated prompt): it only says whether there is an answer to speak of.
"""

from __future__ import annotations

import asyncio
from typing import Any

from deepdraft.adapters.event import event_facts
from deepdraft.adapters.json_text import decoded_object
from deepdraft.adapters.message import error_message, page_title, retry_after_s, server_words
from deepdraft.adapters.stream import StreamReading, generated_texts
from deepdraft.errors import DeepdraftError
from deepdraft.records import Failure, RequestTrace, trace
from deepdraft.transport.exchange import Ending, Exchange

_SLICE_EVENTS = 16
"""Events read before the loop gets a turn: less than 0.1 ms of work."""


def carries_output(data: bytes) -> bool:
    """Whether an event's data carries generated text (answer, reasoning or tool call): where prefill ends."""
    return event_facts(data).kind in trace.TOKEN_KINDS


def trace_of(
    exchange: Exchange, *, connect_s: float | None = None, error: DeepdraftError | None = None
) -> tuple[RequestTrace, Failure | None]:
    """The trace of an ended exchange, and why the request failed; None when it succeeded.

    connect_s: seconds it took to open the connection. error: what waiting for the end raised (Stalled ...).
    Costs 3 to 5 us an event in one go: while other streams are being stamped, call `trace_in_slices`.
    """
    return _trace_from(exchange, read_stream(exchange), connect_s, error)


async def trace_in_slices(
    exchange: Exchange, *, connect_s: float | None = None, error: DeepdraftError | None = None
) -> tuple[RequestTrace, Failure | None]:
    """As `trace_of`, giving the loop a turn every few events: streams that are still open keep their stamps."""
    stream = StreamReading()
    for start in range(0, len(exchange.events), _SLICE_EVENTS):
        _feed(stream, exchange, start, start + _SLICE_EVENTS)
        await asyncio.sleep(0)
    _read_leftover(exchange, stream)
    return _trace_from(exchange, stream, connect_s, error)


def _trace_from(
    exchange: Exchange, stream: StreamReading, connect_s: float | None, error: DeepdraftError | None
) -> tuple[RequestTrace, Failure | None]:
    found = RequestTrace(
        connect_s=connect_s,
        written_s=_since_sent(exchange, exchange.written_at),
        first_byte_s=_since_sent(exchange, exchange.first_byte_at),
        end_s=_since_sent(exchange, exchange.end_at),
        http_status=exchange.status,
        events=stream.event_log(),
        num_reads=exchange.num_reads,
        num_bytes=exchange.num_bytes,
        finish_reason=stream.finish_reason,
        saw_done=stream.saw_done,
        usage=stream.usage(),
        server_fields=_server_fields(stream),
        output_text=stream.output_text(),
    )
    return found, failure_of(exchange, stream, error)


def read_stream(exchange: Exchange) -> StreamReading:
    """All events of an exchange, read. Times are rounded to microseconds since sent, one by one, so that the sum of
    the gaps is never off by more than half a microsecond."""
    stream = StreamReading()
    _feed(stream, exchange, 0, len(exchange.events))
    _read_leftover(exchange, stream)
    return stream


def _feed(stream: StreamReading, exchange: Exchange, start: int, end: int) -> None:
    sent_at = exchange.sent_at
    for event in exchange.events[start:end]:
        at_us = round((event.at - sent_at) * 1e6)
        if event.is_comment:
            stream.add_comment(at_us)
        else:
            stream.add_event(at_us, event.data, event.event)


def event_texts(exchange: Exchange) -> list[str]:
    """The generated text of each token-carrying event, for a tokenizer to count cumulatively."""
    return generated_texts((event.data, event.event) for event in exchange.events if not event.is_comment)


def failure_of(exchange: Exchange, stream: StreamReading, error: DeepdraftError | None = None) -> Failure | None:
    """Why the request failed; None when it succeeded. `name` is a class of `deepdraft.errors`."""
    status = exchange.status
    if status is None:
        if error is not None:
            return Failure(name=type(error).__name__, message=error.message)
        words = exchange.fault or "the server closed the connection"
        return Failure(name="Unreachable", message=f"no answer: {words}")
    if status != 200:
        wait_s = retry_after_s(exchange.headers)
        message = error_message(status, exchange.body or _events_body(exchange))
        if wait_s is not None:
            message += f" (retry after {wait_s:g} s)"
        return Failure(name="HttpStatus", message=message, http_status=status, retry_after_s=wait_s)
    if stream.error is not None:
        return Failure(name="ErrorInStream", message=stream.error_words(), http_status=status)
    if not exchange.is_event_stream or (not exchange.events and exchange.body.strip()):
        return _not_a_stream(exchange, error)
    refused = stream.finish_failed()
    if refused is not None:
        return Failure(name="ErrorInStream", message=refused, http_status=status)
    if not stream.saw_done and stream.finish_reason is None:
        seen = _seen(stream)
        if error is not None:
            return Failure(name=type(error).__name__, message=f"{error.message}, {seen}", http_status=status)
        ending = _ENDING_WORDS.get(exchange.ending or Ending.COMPLETE, "")
        said = f" ({exchange.fault})" if exchange.fault else ""
        message = f"the stream ended early{ending}{said}, with neither [DONE] nor a finish_reason, {seen}"
        return Failure(name="StreamEndedEarly", message=message, http_status=status)
    if not stream.num_token_events:
        return Failure(name="EmptyStream", message=_empty_message(stream), http_status=status)
    return None


_ENDING_WORDS = {
    Ending.CLOSED: ": the server closed the connection",
    Ending.RESET: ": the connection broke",
    Ending.MALFORMED: ": what came is not HTTP",
    Ending.ABORTED: ": it was given up",
}


def _since_sent(exchange: Exchange, at: float | None) -> float | None:
    return None if at is None else round(at - exchange.sent_at, 6)


def _server_fields(stream: StreamReading) -> dict[str, Any]:
    if stream.error is None:
        return stream.figures
    return {**stream.figures, "error": stream.error}


def _read_leftover(exchange: Exchange, stream: StreamReading) -> None:
    """A last event whose blank line never came still tells how the stream ended, when it is whole."""
    data = b"\n".join(
        line.removeprefix(b"data:").strip() for line in exchange.leftover.splitlines() if line.startswith(b"data:")
    )
    if data and exchange.end_at is not None and event_facts(data).kind != trace.OTHER:
        stream.add_event(round((exchange.end_at - exchange.sent_at) * 1e6), data)


def _events_body(exchange: Exchange) -> bytes:
    return exchange.events[0].data if exchange.events else b""


def _not_a_stream(exchange: Exchange, error: DeepdraftError | None) -> Failure:
    """HTTP 200, but no event stream."""
    body = exchange.body
    if page_title(body) is not None:
        return Failure(name="NotAnApi", message=f"the server answered with {server_words(body)}", http_status=200)
    answer = decoded_object(body)
    if answer is not None and (answer.get("error") or answer.get("object") == "error"):
        return Failure(name="ErrorInStream", message=server_words(body), http_status=200)
    if answer is not None and "choices" in answer:
        message = "the server ignored `stream: true` and sent the whole answer at once: nothing in it can be timed"
        return Failure(name="EmptyStream", message=message, http_status=200)
    if error is not None:
        return Failure(name=type(error).__name__, message=error.message, http_status=200)
    content_type = exchange.headers.get("content-type") or "no content type"
    message = f"the answer is no event stream ({content_type}): {server_words(body) or 'no body'}"
    return Failure(name="NotAnApi", message=message, http_status=200)


def _seen(stream: StreamReading) -> str:
    counts = stream.event_log().num_tokens
    if counts is not None:
        return f"after {sum(counts)} token{'' if sum(counts) == 1 else 's'}"
    num_events = stream.num_token_events
    return f"after {num_events} event{'' if num_events == 1 else 's'} with text"


def _empty_message(stream: StreamReading) -> str:
    usage = stream.usage()
    counted = "" if usage is None or usage.completion_tokens is None else f", usage counts {usage.completion_tokens}"
    reason = f" (finish_reason {stream.finish_reason}{counted})" if stream.finish_reason else ""
    unknown = f"; {stream.num_other} events could not be read" if stream.num_other else ""
    return f"the stream ended properly, without any text{reason}{unknown}"
