"""The least that a client of streams can do, on plain sockets without asyncio: the marks that ours is held against.

    receive     read, stamp, look for the end of the response; nothing is parsed: the ceiling
    parse       httptools for HTTP, a split at blank lines for events, JSON for each: the peer

Both know one well-behaved server, answer to no limit and keep only stamps.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable, Sequence

import httptools
import msgspec

from deepdraft.errors import DeepdraftError
from deepdraft.transport.endpoint import Endpoint

_CHUNK_BYTES = 1 << 16
_END = b"0\r\n\r\n"
_DATA = b"data: "
_LIMIT_S = 60.0


class Receiving:
    """One response: bytes and stamps."""

    def __init__(self) -> None:
        self.stamps: list[float] = []
        self._tail = b""

    def take(self, at_s: float, chunk: bytes) -> bool:
        """Whether the response has ended."""
        self.stamps.append(at_s)
        self._tail = (self._tail + chunk)[-len(_END) :]
        return self._tail == _END


class Parsing:
    """One response: each event decoded and stamped."""

    def __init__(self) -> None:
        self.stamps: list[float] = []
        self._feed = httptools.HttpResponseParser(self).feed_data
        self._decode = msgspec.json.Decoder().decode
        self._at_s = 0.0
        self._pending = b""
        self._has_ended = False

    def take(self, at_s: float, chunk: bytes) -> bool:
        """Whether the response has ended."""
        self._at_s = at_s
        self._feed(chunk)
        return self._has_ended

    def on_body(self, body: bytes) -> None:
        """What httptools calls."""
        *events, self._pending = (self._pending + body).split(b"\n\n")
        for event in events:
            if event.startswith(_DATA + b"{"):
                self._decode(event[len(_DATA) :])
                self.stamps.append(self._at_s)

    def on_message_complete(self) -> None:
        """What httptools calls."""
        self._has_ended = True


def read_streams(
    endpoint: Endpoint, path: str, bodies: Sequence[bytes], response: Callable[[], Receiving | Parsing]
) -> int:
    """Send all requests at once and read to the end of all answers; returns the stamps taken.

    Raises DeepdraftError where an answer is cut short or nothing comes for a minute.
    """
    waiting = selectors.DefaultSelector()
    responses = []
    for body in bodies:
        connection = socket.create_connection((endpoint.host, endpoint.port))
        found = response()
        responses.append(found)
        waiting.register(connection, selectors.EVENT_READ, found)
        connection.sendall(_request(endpoint, path, body))
    num_open = len(responses)
    with waiting:
        while num_open:
            ready = waiting.select(_LIMIT_S)
            if not ready:
                raise DeepdraftError("the simulated server fell silent")
            for key, _ in ready:
                chunk = key.fileobj.recv(_CHUNK_BYTES)  # type: ignore[union-attr]
                if not chunk:
                    raise DeepdraftError("the simulated server cut an answer short")
                if key.data.take(time.monotonic(), chunk):
                    waiting.unregister(key.fileobj)
                    key.fileobj.close()  # type: ignore[union-attr]
                    num_open -= 1
    return sum(len(found.stamps) for found in responses)


def _request(endpoint: Endpoint, path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: {endpoint.authority}\r\ncontent-type: application/json\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
