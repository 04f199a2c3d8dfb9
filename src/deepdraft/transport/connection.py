"""One connection to a server: requests out, bytes in, each read stamped before anything looks at it.

A BufferedProtocol, because the read buffer is then kept: asyncio's plain Protocol allocates 256 KiB for every
read, which costs more than parsing what came (docs/decisions/0002-http-client.md). httptools takes the HTTP
framing off. Leaves out choosing connections, retrying, and raising for what a server did.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

import httptools

from deepdraft.errors import Unreachable, UsageError
from deepdraft.transport.endpoint import Endpoint
from deepdraft.transport.exchange import Ending, Exchange, TimeLimits
from deepdraft.transport.fault import words
from deepdraft.version import VERSION

_READ_BUFFER_BYTES = 65_536
_MAX_HEAD_BYTES = 262_144
MAX_ERROR_BODY_BYTES = 1_048_576
"""How much is kept of an answer to a stream request that turns out not to be a stream."""

NO_LIMITS = TimeLimits()


class Connection(asyncio.BufferedProtocol):
    """An open connection, made by `Client.open`; one exchange at a time. Use it in an `async with`."""

    def __init__(self, endpoint: Endpoint, headers: Mapping[str, str]) -> None:
        self.endpoint = endpoint
        self.connect_s = 0.0
        """Seconds from the look-up of the name to the connection standing, TLS included."""
        self.idle_since = 0.0
        """When it opened or its last exchange ended, in seconds of time.monotonic."""
        self.num_exchanges = 0
        self._headers = dict(headers)
        self._loop = asyncio.get_running_loop()
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_READ_BUFFER_BYTES))
        self._parser = httptools.HttpResponseParser(self)
        self._exchange: Exchange | None = None
        self._read_at = 0.0
        self._is_write_paused = False
        self._is_closing_delimited = False
        self._fields: list[tuple[str, str]] = []

    # For callers

    @property
    def is_ready(self) -> bool:
        """Can a request be sent on it, as far as is known here? A close under way shows only when tried."""
        return self._transport is not None and not self._transport.is_closing() and self._exchange is None

    def stream(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        limits: TimeLimits = NO_LIMITS,
        is_output: Callable[[bytes], bool] | None = None,
    ) -> Exchange:
        """POST `body`, JSON by default, and let the events of the answer gather in the exchange.

        Returns as soon as the request is on its way. `is_output` says whether an event's data carries
        output; it is asked until it first says yes, and tells the time limits where prefill ends.
        Raises Unreachable when the server has closed the connection since it was opened.
        """
        return self.request(
            "POST",
            path,
            body,
            {"content-type": "application/json", "accept": "text/event-stream", **_lowered(headers)},
            limits=limits,
            reads_events=True,
            is_output=is_output,
        )

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        limits: TimeLimits = NO_LIMITS,
        reads_events: bool = False,
        is_output: Callable[[bytes], bool] | None = None,
        max_body_bytes: int = MAX_ERROR_BODY_BYTES,
    ) -> Exchange:
        """Send one request, in a single write. As `stream`, for any method and answer.

        The body of the answer is kept, up to `max_body_bytes`; `reads_events` takes it for events where its
        type allows it. An answer that is no event stream and longer than that is broken off.
        """
        if self._exchange is not None:
            raise RuntimeError("one exchange at a time: the last one has not ended")
        if self._transport is None or self._transport.is_closing():
            raise Unreachable(
                f"{self.endpoint.address} closed the connection before {method} {path} was sent",
                hint="an idle connection is closed by the server after some seconds",
            )
        exchange = Exchange(
            f"{method} {path}",
            limits=limits,
            reads_events=reads_events,
            is_output=is_output,
            max_body_bytes=max_body_bytes,
            abort_connection=self.abort,
        )
        payload = self._payload(method, path, body, _lowered(headers))
        self._exchange = exchange
        self._fields = []
        self._is_closing_delimited = False
        self.num_exchanges += 1
        exchange.start(time.monotonic())
        self._transport.write(payload)
        if not self._is_write_paused:
            exchange.written_at = time.monotonic()
        return exchange

    def abort(self) -> None:
        """Close at once; an exchange under way ends as ABORTED."""
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.finish(Ending.ABORTED, time.monotonic(), "given up by the caller")
        if self._transport is not None:
            self._transport.abort()

    async def close(self) -> None:
        """Close and wait until the socket is closed."""
        self.abort()
        await asyncio.shield(self._lost)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _payload(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> bytes:
        fields = {
            "host": self.endpoint.authority,
            "user-agent": f"deepdraft/{VERSION}",
            "accept": "*/*",
            # Compression would hide when a token was written: the compressor holds bytes back.
            "accept-encoding": "identity",
            **self._headers,
            **headers,
        }
        if body is not None:
            fields["content-length"] = str(len(body))
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        first_line = f"{method} {self.endpoint.target(path)} HTTP/1.1\r\n"
        return f"{first_line}{head}\r\n".encode("latin-1") + (body or b"")

    # For the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        # "Paused" then means that something is left in the process, "resumed" that the kernel has it all.
        # asyncio pauses a plain socket above the limit, but TLS from the limit on, so 0 would always pause it.
        transport.set_write_buffer_limits(high=1 if self.endpoint.is_tls else 0, low=0)

    def pause_writing(self) -> None:
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        if self._exchange is not None:
            self._exchange.written_at = time.monotonic()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, num_bytes: int) -> None:
        at = time.monotonic()
        exchange = self._exchange
        if exchange is None:
            self.abort()  # an answer nobody asked for: nothing later on this connection can be trusted
            return
        self._read_at = at
        exchange.num_reads += 1
        exchange.num_bytes += num_bytes
        if exchange.first_byte_at is None:
            exchange.first_byte_at = at
        try:
            self._parser.feed_data(self._buffer[:num_bytes])
        except httptools.HttpParserUpgrade:
            self._end(Ending.MALFORMED, at, "the server switched to another protocol unasked")
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, Exception):  # raised by one of our own callbacks
                exchange.fail(error.__context__, at)
            self._end(Ending.MALFORMED, at, f"not HTTP: {error}")
        else:
            if exchange.head_at is None and exchange.num_bytes > _MAX_HEAD_BYTES:
                self._end(Ending.MALFORMED, at, f"headers of more than {_MAX_HEAD_BYTES} bytes")

    def eof_received(self) -> None:
        """The server closed in order; returning None lets asyncio close our side too."""
        if self._is_closing_delimited:
            self._end(Ending.COMPLETE, time.monotonic(), None)
        else:
            self._end(Ending.CLOSED, time.monotonic(), None)

    def connection_lost(self, error: Exception | None) -> None:
        at = time.monotonic()
        if error is None:
            self.eof_received()
        else:
            if not isinstance(error, OSError) and self._exchange is not None:
                self._exchange.fail(error, at)
            self._end(Ending.RESET, at, words(error))
        self._transport = None
        if not self._lost.done():
            self._lost.set_result(None)

    # For httptools

    def on_message_begin(self) -> None:
        self._fields = []
        if self._exchange is None:  # a second answer in the read that ended the first
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields.append((name.decode("latin-1").lower(), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        exchange, status = self._exchange, self._parser.get_status_code()
        if exchange is None or 100 <= status < 200:
            return
        headers: dict[str, str] = {}
        for name, value in self._fields:
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        is_framed = "transfer-encoding" in headers or "content-length" in headers
        self._is_closing_delimited = not is_framed and status not in (204, 304)
        exchange.take_head(status, self._parser.get_http_version(), headers, self._read_at)

    def on_body(self, body: bytes) -> None:
        exchange = self._exchange
        if exchange is not None:
            exchange.take_body(body, self._read_at)

    def on_message_complete(self) -> None:
        exchange = self._exchange
        if exchange is None or exchange.head_at is None:  # the end of a 1xx
            return
        can_go_on = self._parser.should_keep_alive() and exchange.written_at is not None
        self._end(Ending.COMPLETE, self._read_at, None, keeps_open=can_go_on)

    def _end(self, ending: Ending, at: float, fault: str | None, *, keeps_open: bool = False) -> None:
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            self.idle_since = at
            exchange.finish(ending, at, fault)
        if not keeps_open and self._transport is not None:
            self._transport.abort()


def checked_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Names in lower case; raises UsageError for what can't stand in a header, without repeating its value."""
    for name, value in headers.items():
        if not name or not name.isascii() or any(char <= " " or char in ':"(),/;<=>?@[]{}\\\x7f' for char in name):
            raise UsageError(f"not a header's name: {name!r}")
        if any(char in value for char in "\r\n\0") or not _is_latin_1(value):
            raise UsageError(f"the value of header {name!r} holds a character that can't be sent")
    return _lowered(headers)


def _lowered(headers: Mapping[str, str] | None) -> dict[str, str]:
    return {name.lower(): value for name, value in (headers or {}).items()}


def _is_latin_1(text: str) -> bool:
    return all(ord(char) < 256 for char in text)
