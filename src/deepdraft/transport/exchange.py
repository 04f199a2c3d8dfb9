"""One request and its answer as they happened: stamps, status, events, body, and how it ended.

Events go into a list; nobody is woken for them. A task per stream that is woken for every token would cost
more than everything else done for that token, and what is measured needs no watcher: the stamps are taken at
the socket. A caller waits for the first output and for the end only, and may read the lists at any time.

Every `..._at` is in seconds of time.monotonic. Leaves out sockets (`connection` feeds it) and meaning:
a status of 500 or an error object among the events is a fact here, not a failure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from deepdraft.errors import Stalled
from deepdraft.transport.sse import EventReader
from deepdraft.units import seconds_text

# Read as an event stream under status 200; besides text/event-stream, what servers that set no type send.
_EVENT_STREAM_TYPES = ("text/event-stream", "text/plain", "application/octet-stream", "")


def _nothing() -> None:
    """What is left to abort once an exchange has ended."""


class Ending(StrEnum):
    """How an answer ended."""

    COMPLETE = "complete"
    """As HTTP says it should: length reached, last chunk seen, or, where neither was promised, closed."""
    CLOSED = "closed"
    """The server closed in order, but before the end that HTTP promised."""
    RESET = "reset"
    """The connection broke: reset by the peer, or lost on the way."""
    MALFORMED = "malformed"
    """The bytes are not HTTP."""
    ABORTED = "aborted"
    """We closed: a time limit, a body beyond its limit, or the caller."""


@dataclass(frozen=True)
class TimeLimits:
    """How long to wait, in seconds; None waits without limit.

    A comment (ping) is a sign of life but no progress: it prolongs none of these.
    """

    first_event_limit_s: float | None = None
    """From the request to the first output: the first event for which `is_output` holds, or any event
    when no `is_output` was given. An answer that is no event stream must have ended by then."""
    stall_limit_s: float | None = None
    """After the first output: longest silence, that is without a byte of an event. Before it silence is
    normal, since a long prompt is being read. For an answer that is no event stream, from its head on."""
    total_limit_s: float | None = None
    """From the request to the end of the answer."""


class StreamEvent(msgspec.Struct, frozen=True, gc=False):
    """One event as it came in. A Struct rather than a dataclass because one is made for every token."""

    at: float
    """When the read that completed it was taken from the socket."""
    read_index: int
    """Which read of the exchange that was; events of one read share it."""
    data: bytes
    event: str | None
    is_comment: bool


class Exchange:
    """One request under way or done. Made by `Connection`; the attributes may be read at any time."""

    def __init__(
        self,
        request: str,
        *,
        limits: TimeLimits,
        reads_events: bool,
        is_output: Callable[[bytes], bool] | None,
        max_body_bytes: int,
        abort_connection: Callable[[], None],
    ) -> None:
        self.request = request
        """Method and path, for messages."""
        self.sent_at = 0.0
        """Just before the request's bytes were handed to the socket."""
        self.written_at: float | None = None
        """When the last byte of the request was handed to the kernel; None when it never was. Under TLS
        up to 64 KiB may still lie in the process."""
        self.first_byte_at: float | None = None
        self.head_at: float | None = None
        """The read that completed the status line and headers (of the final answer, not of a 1xx)."""
        self.first_output_at: float | None = None
        """The first event that `is_output` accepted; any event but a comment when none was given."""
        self.last_progress_at: float | None = None
        """The last read that held part of an event (or of a plain body), comments apart."""
        self.end_at: float | None = None
        self.status: int | None = None
        self.http_version: str | None = None
        self.headers: Mapping[str, str] = {}
        """Names in lower case; values of one name joined by `, `."""
        self.is_event_stream = False
        """Asked for, answered with status 200, and of a type that may hold events."""
        self.events: list[StreamEvent] = []
        """Everything in order of arrival, comments included."""
        self.num_comments = 0
        self.body = b""
        """The body of an answer that is no event stream; also kept of one whose type only might be."""
        self.ending: Ending | None = None
        """None while it runs."""
        self.fault: str | None = None
        """The system's, the parser's or our own word on an ending other than COMPLETE."""
        self.leftover = b""
        """The start of an event that was never completed; not empty means that the stream was cut."""
        self.num_reads = 0
        """Reads from the socket."""
        self.num_bytes = 0
        """Bytes received, head and framing included; under TLS as decrypted."""
        self._limits = limits
        self._reads_events = reads_events
        self._is_output = is_output
        self._max_body_bytes = max_body_bytes
        self._abort_connection = abort_connection
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._first_output: asyncio.Future[None] | None = None
        self._reader: EventReader | None = None
        self._keeps_body = True
        self._body_parts: list[bytes] = []
        self._num_body_bytes = 0
        self._timer: asyncio.TimerHandle | None = None
        self._failure: Exception | None = None

    async def wait_end(self) -> None:
        """Wait until the answer has ended, however it did: see `ending`.

        Raises Stalled when a limit was reached, and whatever `is_output` raised. Everything received until
        then stays readable. Cancelling this wait closes the connection at once.
        """
        try:
            await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self.abort()
            raise
        if self._failure is not None:
            raise self._failure

    async def wait_first_output(self) -> bool:
        """Wait for the first output (see TimeLimits) or the end, whichever is first; was there output?

        Raises nothing of the exchange's own: `wait_end` does. Cancelling this wait changes nothing.
        """
        if self.first_output_at is None and self.ending is None:
            if self._first_output is None:
                self._first_output = self._loop.create_future()
            await asyncio.shield(self._first_output)
        return self.first_output_at is not None

    def abort(self) -> None:
        """Close the connection at once; the exchange ends as ABORTED unless it had ended before."""
        self._break_off("given up by the caller")

    # What follows is for the connection that feeds the exchange.

    def start(self, at: float) -> None:
        """The request is about to be written."""
        self.sent_at = at
        self._arm()

    def take_head(self, status: int, http_version: str, headers: Mapping[str, str], at: float) -> None:
        """The final answer's head is complete."""
        self.status, self.http_version, self.headers = status, http_version, headers
        self.head_at = self.last_progress_at = at
        content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
        self.is_event_stream = self._reads_events and status == 200 and content_type in _EVENT_STREAM_TYPES
        if self.is_event_stream:
            self._reader = EventReader()
            self._keeps_body = content_type != "text/event-stream"
        else:
            self._arm()

    def take_body(self, body: bytes, at: float) -> None:
        """Bytes of the body, taken from the socket at `at`; framing is gone already."""
        if self._keeps_body:
            self._keep(body)
        reader = self._reader
        if reader is None:
            self.last_progress_at = at
            return
        completed = reader.feed(body)
        if not completed:
            if reader.is_within_event:
                self.last_progress_at = at
            return
        events, read_index = self.events, self.num_reads - 1
        for event in completed:
            events.append(StreamEvent(at, read_index, event.data, event.event, event.is_comment))
            if event.is_comment:
                self.num_comments += 1
                continue
            self.last_progress_at = at
            if self.first_output_at is None and (self._is_output is None or self._is_output(event.data)):
                self._begin_output(at)

    def finish(self, ending: Ending, at: float, fault: str | None = None) -> None:
        """Nothing more will come. Only the first call counts."""
        if self.ending is not None:
            return
        self.ending, self.end_at, self.fault = ending, at, fault
        if self._reader is not None:
            self.leftover = self._reader.close()
        self.body = b"".join(self._body_parts)
        self._body_parts.clear()
        if self._timer is not None:
            self._timer.cancel()
        # A finished exchange may be kept for long; the connection with its buffer is not kept with it.
        self._abort_connection, self._is_output, self._reader = _nothing, None, None
        for waiter in (self._first_output, self._ended):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def fail(self, failure: Exception, at: float) -> None:
        """End it with an error that `wait_end` raises."""
        if self.ending is None:
            self._failure = failure
            self.finish(Ending.ABORTED, at, str(failure))

    def _break_off(self, fault: str) -> None:
        if self.ending is None:
            abort_connection = self._abort_connection
            self.finish(Ending.ABORTED, time.monotonic(), fault)
            abort_connection()

    def _keep(self, body: bytes) -> None:
        room = self._max_body_bytes - self._num_body_bytes
        self._body_parts.append(body[:room])
        self._num_body_bytes += min(room, len(body))
        if len(body) > room and self._reader is None:
            self._break_off(f"a body of more than {self._max_body_bytes} bytes")

    def _begin_output(self, at: float) -> None:
        self.first_output_at = at
        if self._first_output is not None and not self._first_output.done():
            self._first_output.set_result(None)
        self._arm()

    # Limits: one timer for the nearest deadline. Progress does not touch it; it looks at its progress when due.

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadlines = [at for at, _ in self._deadlines()]
        if deadlines and self.ending is None:
            self._timer = self._loop.call_later(max(0.0, min(deadlines) - time.monotonic()), self._check)

    def _check(self) -> None:
        now = time.monotonic()
        for at, waited_for in self._deadlines():
            if now >= at:
                self._failure = Stalled(f"{self.request}: {waited_for}{self._so_far()}")
                self._break_off(self._failure.message)
                return
        self._timer = None
        self._arm()

    def _deadlines(self) -> Iterator[tuple[float, str]]:
        limits = self._limits
        if self.first_output_at is None and limits.first_event_limit_s is not None:
            what = "no answer" if self.first_byte_at is None else "no output"
            limit_s = limits.first_event_limit_s
            yield self.sent_at + limit_s, f"{what} within {seconds_text(limit_s)}"
        if limits.stall_limit_s is not None and self.last_progress_at is not None:
            is_plain = self.status is not None and not self.is_event_stream
            if is_plain or self.first_output_at is not None:
                limit_s = limits.stall_limit_s
                yield self.last_progress_at + limit_s, f"nothing more came for {seconds_text(limit_s)}"
        if limits.total_limit_s is not None:
            what = "no answer" if self.first_byte_at is None else "not finished"
            yield self.sent_at + limits.total_limit_s, f"{what} within {seconds_text(limits.total_limit_s)}"

    def _so_far(self) -> str:
        if self.status is None:
            return ""
        num_events = len(self.events) - self.num_comments
        pings = f" and {self.num_comments} comments" if self.num_comments else ""
        came = f"{num_events} events{pings}" if self.is_event_stream else f"{self._num_body_bytes} bytes"
        return f" (status {self.status}, {came} before)"
