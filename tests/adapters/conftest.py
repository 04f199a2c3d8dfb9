"""Recorded answers of real servers, and a small server whose answers a test chooses."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from deepdraft.transport.client import Client
from deepdraft.transport.endpoint import endpoint
from deepdraft.transport.sse import EventReader

T = TypeVar("T")
SAMPLES = Path(__file__).parents[1] / "samples"


class Recorded:
    """The files of tests/samples, as received."""

    def bytes(self, name: str) -> bytes:
        """A file; the mark of the status that some recordings have at their end is taken off."""
        return re.sub(rb" \[\d{3}\]\s*$", b"", (SAMPLES / name).read_bytes())

    def text(self, name: str) -> str:
        return self.bytes(name).decode()

    def json(self, name: str) -> Any:
        """A JSON file; one that was cut while recording is closed where it was cut."""
        text = self.text(name)
        try:
            return json.loads(text)
        except json.JSONDecodeError:
            return json.loads(_closed(text))

    def stream(self, name: str) -> bytes:
        """A stream without the `# t=` lines that were added when it was recorded."""
        return b"".join(line for line in self.bytes(name).splitlines(True) if not line.startswith(b"# t="))

    def events(self, name: str) -> list[bytes]:
        """The data of a stream's events."""
        return [event.data for event in EventReader().feed(self.stream(name)) if not event.is_comment]

    def stamps_us(self, name: str) -> list[int]:
        """The times that were noted when a stream was recorded."""
        return [round(float(line[4:]) * 1e6) for line in self.bytes(name).splitlines() if line.startswith(b"# t=")]


def _closed(text: str) -> str:
    text = text[: text.rfind(',"')]
    stack = []
    is_text = is_escaped = False
    for char in text:
        if is_text:
            is_text = is_escaped or char != '"'
            is_escaped = char == "\\" and not is_escaped
        elif char == '"':
            is_text = True
        elif char in "{[":
            stack.append("}" if char == "{" else "]")
        elif char in "}]":
            stack.pop()
    return text + "".join(reversed(stack))


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


@dataclass
class Asked:
    """A request as the small server got it."""

    method: str
    path: str
    """With the query."""
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Answer:
    """What the small server answers. `pieces`: bytes written one after the other; a number is slept (seconds)."""

    status: int = 200
    body: bytes | str | Mapping[str, Any] | list[Any] = b""
    content_type: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: tuple[bytes | float, ...] | None = None
    is_cut: bool = False
    """Close the connection before the end that was promised."""


Responder = Callable[[Asked], Answer | Awaitable[Answer]]


class SmallServer:
    """Answers by (method, path without query); anything else is FastAPI's 404."""

    def __init__(self, routes: Mapping[tuple[str, str], Answer | Responder]) -> None:
        self.routes = dict(routes)
        self.asked: list[Asked] = []
        self.url = ""

    def paths(self) -> list[str]:
        return [asked.path for asked in self.asked]

    def bodies(self, path: str) -> list[Any]:
        return [asked.json for asked in self.asked if asked.path == path and asked.body]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._answer_one(reader, writer):
                pass
        writer.close()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        method, path, _ = first.split(" ")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        asked = Asked(method, path, headers, body)
        self.asked.append(asked)
        route = self.routes.get((method, path.partition("?")[0]), Answer(404, {"detail": "Not Found"}))
        answer = route if isinstance(route, Answer) else route(asked)
        if not isinstance(answer, Answer):
            answer = await answer
        return await self._write(writer, answer)

    async def _write(self, writer: asyncio.StreamWriter, answer: Answer) -> bool:
        content = answer.body
        content_type = answer.content_type
        if not isinstance(content, bytes | str):
            content, content_type = json.dumps(content), content_type or "application/json"
        if isinstance(content, str):
            content = content.encode()
        head = [f"HTTP/1.1 {answer.status} X", *(f"{name}: {value}" for name, value in answer.headers.items())]
        if answer.pieces is None:
            head += [f"content-type: {content_type or 'text/plain'}", f"content-length: {len(content)}"]
            writer.write("\r\n".join([*head, "", ""]).encode() + content)
            await writer.drain()
            return not answer.is_cut
        head += [f"content-type: {content_type or 'text/event-stream'}", "transfer-encoding: chunked"]
        writer.write("\r\n".join([*head, "", ""]).encode())
        for piece in answer.pieces:
            await writer.drain()
            if isinstance(piece, bytes):
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            else:
                await asyncio.sleep(piece)
        if not answer.is_cut:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        return not answer.is_cut


@contextlib.asynccontextmanager
async def small_server(
    routes: Mapping[tuple[str, str], Answer | Responder], *, base_path: str = ""
) -> AsyncIterator[tuple[SmallServer, Client]]:
    """The server, and a client of it."""
    server = SmallServer({(method, base_path + path): route for (method, path), route in routes.items()})
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    server.url = f"http://127.0.0.1:{port}{base_path}"
    async with Client(endpoint(server.url + "/v1")) as client:
        yield server, client
    listener.close()


def sse(*events: Mapping[str, Any] | bytes | str, done: bool = True) -> bytes:
    """Events as a stream writes them."""
    lines = []
    for event in events:
        data = event if isinstance(event, bytes | str) else json.dumps(event)
        lines.append(b"data: " + (data.encode() if isinstance(data, str) else data) + b"\n\n")
    return b"".join(lines) + (b"data: [DONE]\n\n" if done else b"")


def chat_chunk(content: str | None = None, finish_reason: str | None = None, **more: Any) -> dict[str, Any]:
    """A chunk of a chat stream."""
    delta = {} if content is None else {"content": content}
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}], **more}


def usage(prompt_tokens: int, completion_tokens: int, **more: Any) -> dict[str, Any]:
    return {"prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, **more}


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine within a time that no test here needs."""

    async def limited() -> T:
        async with asyncio.timeout(60):
            return await work

    return asyncio.run(limited())


class Tools:
    """What tests take from here; importlib mode has no imports between test files."""

    Answer = Answer
    Asked = Asked
    small_server = staticmethod(small_server)
    sse = staticmethod(sse)
    chat_chunk = staticmethod(chat_chunk)
    usage = staticmethod(usage)
    run = staticmethod(run)


@pytest.fixture
def tools() -> type[Tools]:
    return Tools
