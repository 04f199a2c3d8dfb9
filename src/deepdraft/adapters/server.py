"""How an adapter talks to its server: small requests around the measured ones.

The one place of this room that uses the transport's client. Measured requests don't pass here: the sweep opens its
own connections and hands the exchange to `reading.trace_of`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import msgspec

from deepdraft.adapters.json_text import decoded
from deepdraft.adapters.message import error_message
from deepdraft.adapters.reading import carries_output, trace_of
from deepdraft.errors import RequestFailed, ServerError
from deepdraft.records import Failure, RequestTrace
from deepdraft.transport.client import Client
from deepdraft.transport.exchange import TimeLimits

NOT_READY = frozenset({502, 503, 504})
"""What a server that still loads its model answers, or a proxy in front of one that restarts."""


class ServerLoading(ServerError):
    """The server is up, and still loads its model."""

    @classmethod
    def said_by(cls, server: Server, reply: Reply) -> Self:
        """The error for a reply with a status of NOT_READY."""
        words = error_message(reply.status, reply.body)
        return cls(f"{server.url} is not ready: {words}", hint="wait until it has loaded its model")


@dataclass(frozen=True)
class Reply:
    """A whole answer to a small request."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    @cached_property
    def text(self) -> str:
        """The body as text, whatever it is."""
        return self.body.decode("utf-8", "replace").strip()

    @cached_property
    def json(self) -> Any:
        """The body's JSON value; None when it is none (and for a body of `null`)."""
        try:
            return decoded(self.body) if self.body.strip() else None
        except ValueError:
            return None


class Server:
    """One server, behind the transport's client."""

    def __init__(self, client: Client, admin_headers: Mapping[str, str] | None = None) -> None:
        self._client = client
        self._admin_headers = dict(admin_headers or {})

    @property
    def url(self) -> str:
        """Where it is, for messages."""
        return self._client.endpoint.url

    async def get(self, path: str, *, limit_s: float = 10.0) -> Reply:
        """GET a path (after the base path, before any /v1). Raises ServerError or Stalled when no answer came."""
        response = await self._client.get(path, limit_s)
        return Reply(response.status, response.headers, response.body)

    async def try_get(self, path: str, *, limit_s: float = 10.0) -> Reply | None:
        """As `get`; None when no answer came."""
        try:
            return await self.get(path, limit_s=limit_s)
        except (ServerError, RequestFailed):
            return None

    async def try_post(
        self, path: str, body: Mapping[str, Any] | None, *, limit_s: float = 30.0, is_admin: bool = False
    ) -> Reply | None:
        """POST a JSON body, or none; None when no answer came. is_admin: with the admin key, where one was given."""
        content = b"" if body is None else msgspec.json.encode(body)
        headers = self._admin_headers if is_admin else {}
        try:
            response = await self._client.post(path, content, limit_s, headers=headers)
        except (ServerError, RequestFailed):
            return None
        return Reply(response.status, response.headers, response.body)

    async def try_json(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON of a 200 answer, by GET, or by POST of a body; None otherwise."""
        reply = await (self.try_get(path) if body is None else self.try_post(path, body))
        return reply.json if reply is not None and reply.status == 200 else None

    async def generate(self, path: str, body: bytes, *, limit_s: float) -> tuple[RequestTrace, Failure | None]:
        """Stream one small answer. limit_s: for the first text, and for each silence after it.

        Raises Unreachable when there is no connection.
        """
        limits = TimeLimits(first_event_limit_s=limit_s, stall_limit_s=limit_s)
        error: RequestFailed | None = None
        async with await self._client.open() as connection:
            exchange = connection.stream(path, body, limits=limits, is_output=carries_output)
            try:
                await exchange.wait_end()
            except RequestFailed as failed:
                error = failed
        return trace_of(exchange, connect_s=connection.connect_s, error=error)
