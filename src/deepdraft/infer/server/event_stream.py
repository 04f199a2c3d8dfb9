"""Server-sent events to one client, and the notice that a client is gone.

A client that went away is noticed at once, also while nothing is being sent. One that stays but does not read is cut
off after a while: what it does not fetch must not be kept for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any

import msgspec
from starlette.types import Receive, Send

PING_S = 15.0
"""After this much silence (a long prefill) a comment line is sent, so that proxies keep the connection."""
SEND_LIMIT_S = 300.0
"""How long a client may leave its answer unread."""
_HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # nginx passes events on as they come
)
_encoder = msgspec.json.Encoder()


class ClientStalled(Exception):
    """The client did not read for SEND_LIMIT_S."""


class EventStream:
    """One streamed answer. The head goes out with the first event."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.is_started = False

    async def start(self) -> None:
        """Send the head of the answer."""
        if not self.is_started:
            self.is_started = True
            await self._send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})

    async def events(self, contents: Iterable[Mapping[str, Any]]) -> None:
        """Send events in one write, each a JSON object. Raises ClientStalled."""
        await self._write(b"".join(b"data: %b\n\n" % _encoder.encode(content) for content in contents))

    async def ping(self) -> None:
        """Send a comment, which clients ignore. Raises ClientStalled."""
        await self._write(b": ping\n\n")

    async def end(self, *, is_done: bool) -> None:
        """End the answer; `is_done`: with [DONE], as one that is complete. Raises ClientStalled."""
        await self._write(b"data: [DONE]\n\n" if is_done else b"", is_last=True)

    async def _write(self, content: bytes, *, is_last: bool = False) -> None:
        await self.start()
        try:
            async with asyncio.timeout(SEND_LIMIT_S):
                await self._send({"type": "http.response.body", "body": content, "more_body": not is_last})
        except TimeoutError:
            raise ClientStalled from None


async def while_connected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Do the work, and cancel it when the client goes away. The request's body must have been read.

    Raises what the work raises.
    """
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
    finally:
        watching.cancel()
        if not working.done():
            working.cancel()
        await asyncio.wait((working, watching))
    if not working.cancelled():
        working.result()


async def _disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
