"""A loopback server that does what its script says, and certificates for it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trustme

T = TypeVar("T")
CLOSE = "close"
RESET = "reset"
Step = bytes | float | str
"""Bytes are written at once, a number is slept in seconds, CLOSE and RESET end the connection."""


@dataclass
class Asked:
    """One request as it came, and when each part of its answer was written (time.monotonic)."""

    head: bytes
    body: bytes
    connection_index: int
    first_read_bytes: int
    received_at: float
    writes_at: list[float] = field(default_factory=list)

    @property
    def first_line(self) -> str:
        return self.head.split(b"\r\n")[0].decode()

    @property
    def headers(self) -> dict[str, str]:
        fields = [line.decode("latin-1").partition(": ") for line in self.head.split(b"\r\n")[1:]]
        return {name: value for name, _, value in fields}


Script = Callable[[Asked], Iterable[Step]]


class Loopback:
    """Answers every request of every connection by its script; keep-alive unless the script closes."""

    CLOSE = CLOSE
    RESET = RESET

    def __init__(self, script: Script | Iterable[Step], reads_after_s: float) -> None:
        self.script: Script = script if callable(script) else lambda _, steps=list(script): steps  # type: ignore[misc]
        self.reads_after_s = reads_after_s
        self.port = 0
        self.asked: list[Asked] = []
        self.num_connections = 0
        self.lost_at: list[float] = []
        """When a connection was found closed by the client."""
        self.lost = asyncio.Event()

    @staticmethod
    def run(work: Coroutine[Any, Any, T]) -> T:
        async def limited() -> T:
            async with asyncio.timeout(30):
                return await work

        return asyncio.run(limited())

    @staticmethod
    @contextlib.asynccontextmanager
    async def serve(
        script: Script | Iterable[Step],
        *,
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
        reads_after_s: float = 0.0,
    ) -> AsyncIterator[Loopback]:
        """Serve until the block is left; `reads_after_s` leaves what was sent in the kernel for so long."""
        loopback = Loopback(script, reads_after_s)
        # Named as TCP, because asyncio turns Nagle's delay off only for sockets that say so.
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        if reads_after_s:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        listener.bind((host, 0))
        server = await asyncio.start_server(loopback.answer, sock=listener, ssl=tls, limit=1 << 24)
        loopback.port = listener.getsockname()[1]
        tasks_before = asyncio.all_tasks()
        try:
            yield loopback
        finally:
            server.close()
            for task in asyncio.all_tasks() - tasks_before:
                task.cancel()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection_index = self.num_connections
        self.num_connections += 1
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError):
            try:
                while await self.answer_one(reader, writer, connection_index):
                    pass
            finally:
                writer.close()

    async def answer_one(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection_index: int
    ) -> bool:
        if self.reads_after_s:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            await asyncio.sleep(self.reads_after_s)
            writer.transport.resume_reading()  # type: ignore[attr-defined]
        received = await reader.read(65_536)
        if not received:
            self.lost_at.append(time.monotonic())
            self.lost.set()
            return False
        first_read_bytes = len(received)
        while b"\r\n\r\n" not in received:
            received += await reader.read(65_536)
        head, _, body = received.partition(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0] or 0)
        body += await reader.readexactly(size - len(body))
        asked = Asked(head, body, connection_index, first_read_bytes, time.monotonic())
        self.asked.append(asked)
        for step in self.script(asked):
            if isinstance(step, bytes):
                asked.writes_at.append(time.monotonic())
                writer.write(step)
                await writer.drain()
            elif isinstance(step, float):
                await asyncio.sleep(step)
            else:
                if step == RESET:
                    linger = struct.pack("ii", 1, 0)
                    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    writer.transport.abort()
                return False
        return True

    @staticmethod
    def head(*fields: str, status: str = "200 OK", version: str = "1.1") -> bytes:
        lines = "".join(f"{field}\r\n" for field in fields)
        return f"HTTP/{version} {status}\r\n{lines}\r\n".encode()

    @staticmethod
    def event_head(*fields: str) -> bytes:
        return Loopback.head("content-type: text/event-stream", "transfer-encoding: chunked", *fields)

    @staticmethod
    def chunk(payload: bytes) -> bytes:
        return b"%x\r\n%s\r\n" % (len(payload), payload)

    END = b"0\r\n\r\n"

    @staticmethod
    def whole(body: bytes, *fields: str, status: str = "200 OK") -> bytes:
        return Loopback.head(f"content-length: {len(body)}", *fields, status=status) + body


@pytest.fixture
def loopback() -> type[Loopback]:
    return Loopback


@dataclass(frozen=True)
class Certificates:
    """Files and contexts of one authority, and the file of another that signed nothing here."""

    ca_file: Path
    other_ca_file: Path
    client_file: Path
    server: ssl.SSLContext
    server_of_another_name: ssl.SSLContext
    server_wanting_client: ssl.SSLContext


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    folder = tmp_path_factory.mktemp("certificates")
    ca, other_ca = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(folder / "ca.pem")
    other_ca.cert_pem.write_to_path(folder / "other_ca.pem")
    ca.issue_cert("client").private_key_and_cert_chain_pem.write_to_path(folder / "client.pem")
    contexts = []
    for name in ("127.0.0.1", "elsewhere.example", "127.0.0.1"):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        ca.issue_cert(name).configure_cert(context)
        contexts.append(context)
    contexts[2].verify_mode = ssl.CERT_REQUIRED
    ca.configure_trust(contexts[2])
    return Certificates(folder / "ca.pem", folder / "other_ca.pem", folder / "client.pem", *contexts)
