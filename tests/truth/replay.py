"""Recorded answers of real servers, sent again by a small loopback server, bytes and pace as recorded."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deepdraft.adapters.reading import carries_output, trace_of
from deepdraft.records import Failure, RequestTrace
from deepdraft.transport.client import Client
from deepdraft.transport.endpoint import endpoint

SAMPLES = Path(__file__).parents[1] / "samples"
_LIMIT_S = 20.0
_STAMP = re.compile(rb"# t=([\d.]+)\s*\n")


@dataclass(frozen=True)
class Piece:
    """Bytes, and when they come: seconds after the first piece."""

    at_s: float
    content: bytes


def pieces(stream: str, *, faster: float = 1.0) -> list[Piece]:
    """The events of a recorded stream. Where it holds times of arrival, they are kept, `faster` times as fast."""
    parts = _STAMP.split((SAMPLES / stream).read_bytes())
    if len(parts) == 1:
        return [Piece(0.0, event + b"\n\n") for event in parts[0].split(b"\n\n") if event.strip()]
    stamps_s = [float(stamp) for stamp in parts[1::2]]
    return [
        Piece((stamp_s - stamps_s[0]) / faster, content)
        for stamp_s, content in zip(stamps_s, parts[2::2], strict=True)
    ]


def replayed(head: str, what: list[Piece]) -> tuple[RequestTrace, Failure | None]:
    """What the client makes of an answer with the recorded head (a .headers file) and these pieces."""
    return asyncio.run(asyncio.wait_for(_replayed(head, what), _LIMIT_S))


async def _replayed(head: str, what: list[Piece]) -> tuple[RequestTrace, Failure | None]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"\r\n".join((SAMPLES / head).read_bytes().split(b"\r\n")).rstrip() + b"\r\n\r\n")
        began_at = asyncio.get_running_loop().time()
        for piece in what:
            await asyncio.sleep(max(0.0, began_at + piece.at_s - asyncio.get_running_loop().time()))
            writer.write(b"%x\r\n%s\r\n" % (len(piece.content), piece.content))
        writer.write(b"0\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        client = Client(endpoint(f"http://127.0.0.1:{port}"))
        connection = await client.open()
        exchange = connection.stream("/v1/completions", b"{}", is_output=carries_output)
        await exchange.wait_end()
        connection.abort()
        await client.close()
    return trace_of(exchange)


def without(what: list[Piece], *words: bytes) -> Iterator[Piece]:
    """The pieces that hold none of these words."""
    return (piece for piece in what if not any(word in piece.content for word in words))
