"""Draining: running requests end, new ones are sent away, and what takes too long is told so."""

from __future__ import annotations

import asyncio
import socket

import pytest
import torch

from deepdraft.errors import UsageError
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.infer.server.run import introduction, listening_socket, url_of

LONG = {"prompt": "x", "max_tokens": 200, "temperature": 0, "ignore_eos": True, "stream": True}


def read_to_end(connection: socket.socket) -> bytes:
    content = b""
    while part := connection.recv(65_536):
        content += part
    return content


def test_a_drain_lets_running_requests_end(serving, reciter_folder) -> None:
    with serving(reciter_folder) as server:
        running = server.send("/v1/completions", LONG)
        server.wait_until(lambda: server.metric("deepdraft:generation_tokens_total") > 3)
        server.loop.call_soon_threadsafe(server.server.end)
        server.wait_until(lambda: server.get("/ready").status == 503)
        assert server.get("/health").status == 200
        refused = server.complete("x")
        assert (refused.status, refused.error["code"]) == (503, "draining")
        assert int(refused.headers["retry-after"]) >= 1
        content = read_to_end(running)
        assert content.count(b"data: ") == 200 + 2  # tokens, the finish chunk, [DONE]
        assert b"[DONE]" in content
        server.wait_until(lambda: server.server.should_exit)
        assert server.server.is_in_order
        running.close()


def test_a_drain_has_an_end(serving, reciter_folder) -> None:
    with serving(reciter_folder, drain_timeout_s=0.1) as server:
        streamed = server.send("/v1/completions", LONG)
        whole = server.send("/v1/completions", {**LONG, "stream": False})
        server.wait_until(lambda: server.metric("deepdraft:generation_tokens_total") > 3)
        server.loop.call_soon_threadsafe(server.server.end)
        content = read_to_end(streamed)
        assert b'"code":"draining"' in content and b"[DONE]" not in content
        assert b"HTTP/1.1 503" in read_to_end(whole)
        for connection in (streamed, whole):
            connection.close()


def test_an_idle_server_ends_at_once(serving, reciter_folder) -> None:
    with serving(reciter_folder) as server:
        server.loop.call_soon_threadsafe(server.server.end)
        server.wait_until(lambda: server.server.should_exit)


def test_an_address_that_is_taken() -> None:
    with listening_socket("127.0.0.1", 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        assert url_of(taken) == f"http://127.0.0.1:{port}"
        with pytest.raises(UsageError, match="in use"):
            listening_socket("127.0.0.1", port)
    with pytest.raises(UsageError, match="can't listen"):
        listening_socket("no.such.host.invalid", 0)


def test_the_introduction_says_what_takes_effect(serving, reciter_folder) -> None:
    with serving(reciter_folder, kv_pool_tokens=128) as server:
        text = introduction(server.get("/server_info").json)
    assert "llama" in text and "float32" in text
    assert "context limit 256 tokens" in text
    assert "KV pool 128 tokens, 32 pages of 4, 32768 bytes" in text and "predicted 32768" in text
    assert f"attention {attention_backend(None, torch.device('cpu')).name}, threads 1" in text
    assert "the pool, not the context limit, bounds a request: 128 tokens" in text


def test_events_do_not_wait_for_each_other_on_the_wire() -> None:
    """Nagle's algorithm is off on accepted connections: asyncio does that for sockets named as TCP only."""

    async def accepted_option() -> int:
        accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def on_connection(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        bound = listening_socket("127.0.0.1", 0)
        async with await asyncio.start_server(on_connection, sock=bound):
            _, writer = await asyncio.open_connection(*bound.getsockname())
            option = await accepted
            writer.close()
        return option

    assert asyncio.run(accepted_option()) != 0
