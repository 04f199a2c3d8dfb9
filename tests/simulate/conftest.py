"""A server of known truth in a thread, and a small blocking client that keeps the bytes as they came."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from deepdraft.simulate.clock import precise_loop
from deepdraft.simulate.server import Server
from deepdraft.simulate.spec import SimulateSpec
from deepdraft.simulate.truth import RequestTruth, truths_from_json

SAMPLES = Path(__file__).parent.parent / "samples"
CLIENT_LIMIT_S = 20.0


@dataclass
class Answered:
    """One answer: the body as received, and what can be read out of it."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_complete: bool
    end_s: float

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def payloads(self) -> list[str]:
        """What stands after `data:` in each event, [DONE] included."""
        lines = re.split(r"\r\n|\r|\n", self.text)
        return [line[5:].removeprefix(" ") for line in lines if line.startswith("data:")]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events that are JSON objects."""
        return [json.loads(payload) for payload in self.payloads if payload != "[DONE]"]

    @property
    def output(self) -> str:
        """Answer text, put together."""
        text = ""
        for event in self.events:
            for choice in event.get("choices", ()):
                text += choice.get("text") or (choice.get("delta") or {}).get("content") or ""
        return text

    @property
    def finish_reasons(self) -> list[str]:
        return [
            choice["finish_reason"]
            for event in self.events
            for choice in event.get("choices", ())
            if choice.get("finish_reason")
        ]

    @property
    def usages(self) -> list[dict[str, Any]]:
        return [event["usage"] for event in self.events if event.get("usage")]


@dataclass
class Served:
    """A running server, as a client sees it."""

    url: str
    server: Server
    loop: asyncio.AbstractEventLoop
    headers: dict[str, str] = field(default_factory=dict)

    def connect(self) -> http.client.HTTPConnection:
        address = urlsplit(self.url)
        return http.client.HTTPConnection(address.hostname or "", address.port, timeout=CLIENT_LIMIT_S)

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: dict[str, str] | None = None,
        connection: http.client.HTTPConnection | None = None,
    ) -> Answered:
        own = connection is None
        connection = connection or self.connect()
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, urlsplit(self.url).path + path, content, {**self.headers, **(headers or {})})
            response = connection.getresponse()
            is_complete = True
            try:
                received = response.read()
            except http.client.IncompleteRead as error:
                received, is_complete = error.partial, False
            except ConnectionError:
                received, is_complete = b"", False
            return Answered(
                response.status,
                {name.lower(): value for name, value in response.getheaders()},
                received,
                is_complete,
                time.monotonic(),
            )
        finally:
            if own:
                connection.close()

    def get(self, path: str, **options: Any) -> Answered:
        return self.send("GET", path, **options)

    def chat(self, content: str = "hello there", *, max_tokens: int | None = 8, **fields: Any) -> Answered:
        options = {key: fields.pop(key) for key in ("headers", "connection") if key in fields}
        body = {
            "model": "sim",
            "messages": [{"role": "user", "content": content}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": max_tokens,
            **fields,
        }
        if not body["stream"]:
            del body["stream_options"]
        return self.send("POST", "/v1/chat/completions", body, **options)

    def complete(self, prompt: Any = "hello there", *, max_tokens: int | None = 8, **fields: Any) -> Answered:
        body = {
            "model": "sim",
            "prompt": prompt,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": max_tokens,
            **fields,
        }
        if not body["stream"]:
            del body["stream_options"]
        return self.send("POST", "/v1/completions", body)

    def truths(self, *, reset: bool = False) -> list[RequestTruth]:
        return truths_from_json(self.get("/_truth?reset=1" if reset else "/_truth").body)


Serve = Callable[..., Served]


@contextlib.contextmanager
def in_thread(spec: SimulateSpec) -> Iterator[Served]:
    """The server with a loop of its own, for the block."""
    loop = precise_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = Server(spec)
    url = asyncio.run_coroutine_threadsafe(server.start(), loop).result(CLIENT_LIMIT_S)
    try:
        yield Served(url, server, loop)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(CLIENT_LIMIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(CLIENT_LIMIT_S)
        loop.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start servers that end with the test: serve(dialect=..., physics=..., confounds=..., ...)."""
    with contextlib.ExitStack() as stack:

        def start(spec: SimulateSpec | None = None, **parts: Any) -> Served:
            return stack.enter_context(in_thread(spec or SimulateSpec(**parts)))

        yield start


@pytest.fixture
def sample() -> Callable[[str], str]:
    """The text of a recorded answer: sample("vllm-0.32.0/chat_stream.sse")."""
    return lambda name: (SAMPLES / name).read_text()


def missing_keys(recorded: Any, ours: Any, path: str = "") -> list[str]:
    """Keys of a recorded object that ours lacks, with their paths. Null on either side compares with anything."""
    if isinstance(recorded, dict) and isinstance(ours, dict):
        lacking = [f"{path}.{key}" for key in recorded if key not in ours]
        for key in recorded.keys() & ours.keys():
            lacking += missing_keys(recorded[key], ours[key], f"{path}.{key}")
        return lacking
    if isinstance(recorded, list) and isinstance(ours, list) and recorded and ours:
        return missing_keys(recorded[0], ours[0], f"{path}[0]")
    return []


@pytest.fixture
def lacking() -> Callable[[Any, Any], list[str]]:
    """missing_keys(recorded, ours)."""
    return missing_keys


@pytest.fixture
def recorded_events(sample: Callable[[str], str]) -> Callable[[str], list[dict[str, Any]]]:
    """The JSON events of a recorded stream."""

    def read(name: str) -> list[dict[str, Any]]:
        lines = sample(name).splitlines()
        payloads = [line[6:] for line in lines if line.startswith("data: ") and line != "data: [DONE]"]
        return [json.loads(payload) for payload in payloads]

    return read
