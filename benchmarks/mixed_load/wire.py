"""Just enough of an HTTP client to misbehave with: it can stop reading, close early, and send what is no request."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

LIMIT_S = 300.0


@dataclass(frozen=True, slots=True)
class Address:
    """Where the server is."""

    host: str
    port: int


class Answer:
    """An answer whose head has come."""

    def __init__(self, status: int, reader: asyncio.StreamReader, length: int | None) -> None:
        self.status = status
        self._reader = reader
        self._length = length

    async def body(self) -> bytes:
        """All of it."""
        if self._length is not None:
            return await self._reader.readexactly(self._length)
        return b"".join([part async for part in self._parts()])

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        """The JSON of each event of a stream, up to [DONE]. Raises ValueError where it ends without."""
        rest = b""
        async for part in self._parts():
            *blocks, rest = (rest + part).split(b"\n\n")
            for block in blocks:
                if block == b"data: [DONE]":
                    return
                if block.startswith(b"data: "):
                    yield json.loads(block[6:])
        raise ValueError("a stream without [DONE]")

    async def _parts(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readline()


@contextlib.asynccontextmanager
async def asking(address: Address, method: str, path: str, body: bytes = b"") -> AsyncIterator[Answer]:
    """Send a request on a connection of its own, which is closed with the block, whatever is still to come."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        head = f"{method} {path} HTTP/1.1\r\nhost: server\r\ncontent-length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        async with asyncio.timeout(LIMIT_S):
            status = int((await reader.readline()).split()[1])
            length = None
            while (line := (await reader.readline()).lower()) != b"\r\n":
                if line.startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            yield Answer(status, reader, length)
    finally:
        writer.close()


async def ask(address: Address, method: str, path: str, content: Any = None) -> tuple[int, bytes]:
    """One request and its whole answer; the content is sent as JSON."""
    body = b"" if content is None else json.dumps(content).encode()
    async with asking(address, method, path, body) as answer:
        return answer.status, await answer.body()
