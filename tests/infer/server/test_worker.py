"""The engine's death, and its settings' echo: everyone who waits is told, health says so, and the server ends."""

from __future__ import annotations

import threading

import pytest

from deepdraft.infer.engine import Engine
from deepdraft.infer.errors import LawBroken
from deepdraft.infer.request import Output

LONG = {"prompt": "x", "max_tokens": 240, "temperature": 0, "ignore_eos": True}
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


class Mortal(Engine):
    """An engine that dies in a step once it is told to."""

    is_doomed = threading.Event()

    def step(self) -> tuple[Output, ...]:
        if self.is_doomed.is_set():
            raise LawBroken("pages were lost")
        return super().step()


@pytest.fixture
def mortal(monkeypatch):
    monkeypatch.setattr("deepdraft.infer.server.load.Engine", Mortal)
    Mortal.is_doomed.clear()
    return Mortal.is_doomed


def read_to_end(connection) -> bytes:
    content = b""
    while part := connection.recv(65_536):
        content += part
    return content


def test_when_the_engine_dies_everyone_is_told(serving, reciter_folder, mortal) -> None:
    with serving(reciter_folder) as server:
        streamed = server.send("/v1/completions", {**LONG, "stream": True})
        whole = server.send("/v1/completions", LONG)
        server.wait_until(lambda: server.metric("deepdraft:generation_tokens_total") > 3)
        mortal.set()
        server.wait_until(lambda: server.get("/health").status == 503)
        assert "pages were lost" in server.get("/health").error["message"]
        assert server.get("/ready").status == 503
        for reply in (server.complete("x"), server.post("/flush_cache")):
            assert reply.status == 503
            assert reply.error["code"] == "engine_died"
        assert server.get("/metrics").status == 200
        # Both ended by an error; then the server itself ends.
        content = read_to_end(streamed)
        assert content.startswith(b"HTTP/1.1 200") and b'data: {"error":{' in content and b"[DONE]" not in content
        assert b"HTTP/1.1 503" in read_to_end(whole)
        server.wait_until(lambda: server.server.should_exit)
        assert not server.server.is_in_order
        for connection in (streamed, whole):
            connection.close()


def test_a_death_with_nobody_there(serving, reciter_folder, mortal) -> None:
    with serving(reciter_folder) as server:
        mortal.set()
        reply = server.complete("x")
        assert (reply.status, reply.error["code"]) == (503, "engine_died")
        server.wait_until(lambda: server.server.should_exit)
