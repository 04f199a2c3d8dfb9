"""HTTP/1.1 on one connection: requests in, bytes out, nothing between the two that would delay or regroup them.

The routes live elsewhere: a `Serve` coroutine gets each complete request and a `Reply` to answer on. Requests of one
connection are served one after another. Every write goes to the socket at once (TCP_NODELAY, no buffering of ours).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote

import httptools

from deepdraft.simulate.dialects.answer import Answer

_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request that was received completely at `received_s`, by time.monotonic()."""

    method: str
    path: str
    arguments: dict[str, str]
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    received_s: float


CommonHeaders = Callable[[], list[tuple[str, str]]]


class Reply:
    """The answer to one request. Methods do nothing when the client is gone."""

    def __init__(self, transport: asyncio.Transport, common_headers: CommonHeaders, *, keep_alive: bool) -> None:
        self._transport = transport
        self._common_headers = common_headers
        self.keep_alive = keep_alive
        self.is_finished = False

    def send(self, answer: Answer) -> None:
        """Answer with a body of known length."""
        headers = [
            *self._common_headers(),
            ("content-type", answer.content_type),
            ("content-length", str(len(answer.body))),
            *answer.headers,
        ]
        self.raw(_head(answer.status, headers, self.keep_alive) + answer.body)
        self.finish()

    def start_stream(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        """Send the head of a chunked answer."""
        self.raw(
            _head(
                status,
                [*self._common_headers(), *headers, ("transfer-encoding", "chunked")],
                self.keep_alive,
            )
        )

    def raw(self, content: bytes) -> None:
        """Give bytes to the socket as they are."""
        if not self._transport.is_closing():
            self._transport.write(content)

    def end_stream(self) -> None:
        """Send the last chunk."""
        self.raw(b"0\r\n\r\n")
        self.finish()

    def finish(self) -> None:
        """The answer is complete; the connection closes unless it is kept alive."""
        self.is_finished = True
        if not self.keep_alive and not self._transport.is_closing():
            self._transport.close()

    def cut(self) -> None:
        """Close the connection after what was written, in the middle of the answer."""
        self.is_finished = True
        self._transport.close()


Serve = Callable[[HttpRequest, Reply], Awaitable[None]]


def chunk(content: bytes) -> bytes:
    """The bytes as one chunk of chunked transfer encoding."""
    return b"%x\r\n%b\r\n" % (len(content), content)


class Connection(asyncio.Protocol):
    """One client's connection."""

    def __init__(
        self,
        serve: Serve,
        common_headers: CommonHeaders,
        connections: set[Connection],
        tasks: set[asyncio.Task[None]],
        *,
        keep_alive_s: float | None = None,
    ) -> None:
        self._serve = serve
        self._common_headers = common_headers
        self._connections = connections
        self._tasks = tasks
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._queue: deque[tuple[HttpRequest, bool]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._keep_alive_s = keep_alive_s
        self._idle_end: asyncio.TimerHandle | None = None

    # --- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)
        connection = transport.get_extra_info("socket")
        if connection is not None and connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._transport.close()
        except httptools.HttpParserError:
            self._transport.write(_head(400, [("content-length", "0")], False))
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._queue.clear()
        self._stay()
        if self._task is not None:
            self._task.cancel()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- httptools

    def on_message_begin(self) -> None:
        self._stay()
        self._url, self._headers, self._body = b"", {}, []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._headers.get("expect", "").lower() == "100-continue" and self._transport is not None:
            self._transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._body.append(body)

    def on_message_complete(self) -> None:
        received_s = time.monotonic()
        self._stay()
        path, _, query = self._url.decode("latin-1").partition("?")
        request = HttpRequest(
            method=self._parser.get_method().decode("latin-1"),
            path=unquote(path),
            arguments=dict(parse_qsl(query, keep_blank_values=True)),
            headers=self._headers,
            body=b"".join(self._body),
            received_s=received_s,
        )
        self._queue.append((request, self._parser.should_keep_alive()))
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._serve_queue())
            self._tasks.add(self._task)
            self._task.add_done_callback(self._tasks.discard)

    # --- inside

    async def _serve_queue(self) -> None:
        assert self._transport is not None
        # Cancelled when the client is gone; the routes clean up after themselves.
        with contextlib.suppress(asyncio.CancelledError):
            while self._queue:
                request, keep_alive = self._queue.popleft()
                reply = Reply(self._transport, self._common_headers, keep_alive=keep_alive)
                await self._serve(request, reply)
                if not keep_alive or self._transport.is_closing():
                    break
        self._task = None
        if self._keep_alive_s is not None and not self._transport.is_closing():
            loop = asyncio.get_running_loop()
            self._idle_end = loop.call_later(self._keep_alive_s, self._transport.close)

    def _stay(self) -> None:
        """Don't close for idleness."""
        if self._idle_end is not None:
            self._idle_end.cancel()
            self._idle_end = None


def _head(status: int, headers: Iterable[tuple[str, str]], keep_alive: bool) -> bytes:
    try:
        phrase = HTTPStatus(status).phrase
    except ValueError:
        phrase = ""
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers)]
    if not keep_alive:
        lines.append("connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
