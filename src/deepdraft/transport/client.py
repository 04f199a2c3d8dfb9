"""The client of one server: short requests on pooled connections, and connections opened ahead for streams.

HTTP/1.1, no proxies, no redirects, no cookies, no HTTP/2: what is measured is the server, not what is between.
A status is reported, whatever it is; only what kept an answer from coming whole is raised.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from deepdraft.errors import NotAnApi, ServerLost, Stalled, Unreachable
from deepdraft.transport.connection import Connection, checked_headers
from deepdraft.transport.endpoint import Endpoint
from deepdraft.transport.exchange import Ending, Exchange, TimeLimits
from deepdraft.transport.fault import no_answer, unreachable
from deepdraft.transport.tls import TlsOptions, tls_context
from deepdraft.units import seconds_text

_MAX_IDLE_CONNECTIONS = 8
# Inference servers close an idle connection after 5 s (uvicorn, llama.cpp); one about to be closed is not used.
_MAX_IDLE_S = 4.0
_MAX_ANSWER_BYTES = 16 * 1_048_576
_SYSTEM_TLS = TlsOptions()


@dataclass(frozen=True)
class Response:
    """A whole answer to a short request."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case; values of one name joined by `, `."""
    body: bytes
    elapsed_s: float
    """From the request's first byte written to the answer's last byte read; connecting apart."""


class Client:
    """One server. Use it in an `async with`, or call `close`; it belongs to the loop it is first used on.

    `headers` go with every request. Raises UsageError for a header or a TLS file that can't be used.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        tls: TlsOptions = _SYSTEM_TLS,
        headers: Mapping[str, str] | None = None,
        connect_limit_s: float = 10.0,
    ) -> None:
        self.endpoint = endpoint
        self._headers = checked_headers(headers or {})
        self._connect_limit_s = connect_limit_s
        self._context = tls_context(tls) if endpoint.is_tls else None
        self._idle: list[Connection] = []
        self._has_answered = False

    async def open(self) -> Connection:
        """A new connection, ready to send; how long it took is its `connect_s`.

        Raises Unreachable with the system's words when there is none within the connect limit.
        """
        return await self._open(self._connect_limit_s)

    async def get(self, path: str, timeout_s: float = 10.0, *, headers: Mapping[str, str] | None = None) -> Response:
        """GET `path`, which begins with a slash and comes after the endpoint's base path.

        Raises Unreachable when there is no connection or no answer, Stalled when the answer is not whole
        within `timeout_s` (connecting included), ServerLost when it is cut off, NotAnApi when it isn't HTTP
        or is longer than 16 MiB.
        """
        return await self._fetch("GET", path, None, timeout_s, headers)

    async def post(
        self, path: str, body: bytes = b"", timeout_s: float = 10.0, *, headers: Mapping[str, str] | None = None
    ) -> Response:
        """POST `body`, JSON by default. Raises as `get` does. Never sent twice once it was wholly written."""
        return await self._fetch(
            "POST", path, body, timeout_s, {"content-type": "application/json", **(headers or {})}
        )

    async def close(self) -> None:
        """Close the pooled connections. Those given out by `open` are their holders' to close."""
        idle, self._idle = self._idle, []
        for connection in idle:
            await connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _open(self, limit_s: float) -> Connection:
        loop = asyncio.get_running_loop()
        started_at = time.monotonic()
        connection = Connection(self.endpoint, self._headers)
        is_tls = self._context is not None
        try:
            async with asyncio.timeout(limit_s):
                await loop.create_connection(
                    lambda: connection,
                    self.endpoint.host,
                    self.endpoint.port,
                    ssl=self._context,
                    server_hostname=self.endpoint.host.partition("%")[0] if is_tls else None,
                    happy_eyeballs_delay=0.25,
                )
        except TimeoutError as error:
            if error.errno is not None:  # the system's own, not ours
                raise unreachable(self.endpoint, error) from error
            hint = "is the host right, and does a firewall drop the packets?"
            if self.endpoint.is_tls:
                hint += " A server of plain HTTP may keep silent too: try http://"
            raise Unreachable(
                f"can't reach {self.endpoint.address}: no connection within {seconds_text(limit_s)}", hint=hint
            ) from error
        except OSError as error:
            raise unreachable(self.endpoint, error) from error
        connection.idle_since = time.monotonic()
        connection.connect_s = connection.idle_since - started_at
        return connection

    async def _fetch(
        self, method: str, path: str, body: bytes | None, timeout_s: float, headers: Mapping[str, str] | None
    ) -> Response:
        request_headers = checked_headers(headers or {})
        deadline = time.monotonic() + timeout_s
        connection = await self._pooled()
        while True:
            is_reused = connection is not None
            if connection is None:
                connection = await self._open(min(self._connect_limit_s, max(0.001, deadline - time.monotonic())))
            limits = TimeLimits(total_limit_s=max(0.001, deadline - time.monotonic()))
            exchange = connection.request(
                method, path, body, request_headers, limits=limits, max_body_bytes=_MAX_ANSWER_BYTES
            )
            try:
                await exchange.wait_end()
            except Stalled as error:
                raise Stalled(f"{method} {self.endpoint.url}{path}: {_waited(exchange, timeout_s)}") from error
            if exchange.ending is Ending.COMPLETE:
                self._has_answered = True
                self._give_back(connection)
                return _response(exchange)
            # The server closed a kept connection as we took it: nothing was answered, so ask once more.
            if not (is_reused and exchange.num_bytes == 0 and (method == "GET" or exchange.written_at is None)):
                raise self._failure(exchange)
            connection = None

    async def _pooled(self) -> Connection | None:
        """A kept connection that still stands, or None."""
        if self._idle:
            # Let the loop look at its sockets (one turn to poll, one to run what it found), so that a close
            # that came while the process was busy with something else is known before a request is sent.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        while self._idle:
            connection = self._idle.pop()
            if connection.is_ready and time.monotonic() - connection.idle_since < _MAX_IDLE_S:
                return connection
            connection.abort()
        return None

    def _give_back(self, connection: Connection) -> None:
        if connection.is_ready and len(self._idle) < _MAX_IDLE_CONNECTIONS:
            self._idle.append(connection)
        else:
            connection.abort()

    def _failure(self, exchange: Exchange) -> NotAnApi | ServerLost | Unreachable:
        address = self.endpoint.address
        if exchange.ending is Ending.MALFORMED:
            hint = None if self.endpoint.is_tls else "a server of TLS may answer like this: try https://"
            return NotAnApi(f"{address} answers {exchange.request} with bytes: {exchange.fault}", hint=hint)
        if exchange.ending is Ending.ABORTED:
            return NotAnApi(f"{address} answers {exchange.request} with {exchange.fault}")
        if exchange.num_bytes == 0:
            return no_answer(self.endpoint, exchange.request, exchange.fault, has_answered=self._has_answered)
        said = f": {exchange.fault}" if exchange.fault else ""
        return ServerLost(
            f"{address} cut its answer to {exchange.request} short after {exchange.num_bytes} bytes{said}"
        )


def _waited(exchange: Exchange, timeout_s: float) -> str:
    what = "no answer" if exchange.num_bytes == 0 else f"only {exchange.num_bytes} bytes of an answer"
    return f"{what} within {seconds_text(timeout_s)}"


def _response(exchange: Exchange) -> Response:
    assert exchange.status is not None
    assert exchange.end_at is not None
    return Response(exchange.status, exchange.headers, exchange.body, exchange.end_at - exchange.sent_at)
