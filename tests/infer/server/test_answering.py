"""Clients that go away, that don't read, that are too many, that wait long; and one bad request among many."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

RECITED = "Schöne 漢字🚀"
LONG = {"prompt": "x", "max_tokens": 240, "temperature": 0, "ignore_eos": True}
ABORTED = "deepdraft:request_aborted_total"
GENERATED = "deepdraft:generation_tokens_total"


def read_until(connection: socket.socket, mark: bytes) -> bytes:
    """What comes up to the mark."""
    content = b""
    while mark not in content:
        part = connection.recv(65_536)
        assert part, content
        content += part
    return content


def read_to_end(connection: socket.socket) -> bytes:
    content = b""
    while part := connection.recv(65_536):
        content += part
    return content


def test_a_client_that_leaves_a_stream_frees_its_pages(reciter) -> None:
    before = reciter.metric(ABORTED), reciter.metric(GENERATED)
    with reciter.send("/v1/completions", {**LONG, "stream": True}) as connection:
        read_until(connection, b"data: ")
    reciter.wait_until_idle()
    assert reciter.metric(ABORTED) == before[0] + 1
    assert reciter.metric(GENERATED) < before[1] + 240


def test_a_client_that_leaves_before_a_whole_answer_frees_its_pages(reciter) -> None:
    before = reciter.metric(ABORTED), reciter.metric(GENERATED)
    with reciter.send("/v1/completions", {**LONG, "n": 3}):
        reciter.wait_until(lambda: reciter.metric(GENERATED) > before[1])
    reciter.wait_until_idle()
    assert reciter.metric(ABORTED) == before[0] + 3
    assert reciter.metric(GENERATED) < before[1] + 3 * 240


def test_a_client_that_leaves_during_prefill_or_in_the_queue(serving, random_folder) -> None:
    with serving(random_folder, max_running_requests=1, chunk_len=4) as server:
        first = server.send("/v1/completions", {**LONG, "prompt": "a" * 200, "max_tokens": 20, "stream": True})
        queued = server.send("/v1/completions", {**LONG, "prompt": "b" * 200, "max_tokens": 20})
        server.wait_until(lambda: server.get("/server_info").json["state"]["num_open"] == 2)
        queued.close()
        first.close()
        server.wait_until_idle()
        assert server.metric(ABORTED) == 2
        assert server.metric(GENERATED) == 0


def idle_reader(server: Any) -> socket.socket:
    """A client that asked for a large answer and does not read it."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(30)
    connection.connect(server.address)
    message = b'"messages": [{"role": "user", "content": "x"}], "logprobs": true, "top_logprobs": 20'
    body = b'{%b, "max_tokens": 200, "stream": true, "ignore_eos": true}' % message
    connection.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body) + body
    )
    return connection


def test_what_a_slow_reader_leaves_unread_holds_nobody_up(serving, reciter_folder) -> None:
    with serving(reciter_folder, send_buffer_bytes=4096) as server, idle_reader(server) as connection:
        assert server.complete("x", max_tokens=3).json["choices"][0]["text"] == "Sch"
        # The engine has done its part and no place is held, although nothing was read.
        server.wait_until(lambda: server.get("/server_info").json["state"]["num_open"] == 0)
        assert server.metric(GENERATED) == 200 + 3
        assert server.metric(ABORTED) == 0
        assert b"[DONE]" in read_until(connection, b"[DONE]")


def test_a_stalled_reader_is_cut_off(serving, reciter_folder, monkeypatch) -> None:
    monkeypatch.setattr(
        "deepdraft.infer.server.event_stream.SEND_LIMIT_S", 0.02
    )  # long before the engine has made 200 tokens
    with serving(reciter_folder, send_buffer_bytes=4096) as server, idle_reader(server) as connection:
        server.wait_until(lambda: server.metric(ABORTED) == 1)
        server.wait_until_idle()
        assert server.metric(GENERATED) < 200
        assert b"[DONE]" not in read_to_end(connection)


def test_beyond_the_queue_is_503_and_come_back_later(serving, reciter_folder) -> None:
    with serving(reciter_folder, max_running_requests=1, max_queued_requests=1) as server:
        waiting = [server.send("/v1/completions", {**LONG, "stream": True}) for _ in range(2)]
        server.wait_until(lambda: server.get("/server_info").json["state"]["num_open"] == 2)
        reply = server.complete("x", max_tokens=1)
        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert reply.error["code"] == "queue_full"
        assert server.metric('deepdraft:request_refused_total{status="503"}') == 1
        refused = server.complete("x", max_tokens=1, n=3)
        assert (refused.status, refused.error["param"]) == (400, "n")  # could never be taken
        for connection in waiting:
            connection.close()
        server.wait_until_idle()
        assert server.complete("x", max_tokens=1).status == 200


def test_places_are_counted_exactly_under_a_rush(serving, reciter_folder) -> None:
    with serving(reciter_folder, max_running_requests=2, max_queued_requests=2) as server:
        barrier = threading.Barrier(12)

        def ask(_: int) -> int:
            barrier.wait(30)
            return server.complete("x", max_tokens=40, n=2).status

        with ThreadPoolExecutor(12) as threads:
            statuses = list(threads.map(ask, range(12)))
        assert set(statuses) <= {200, 503}
        assert 2 <= statuses.count(200) < 12
        server.wait_until_idle()
        assert server.complete("x", max_tokens=1, n=4).status == 200  # every place is free again


def test_long_silence_is_filled_with_comments(serving, random_folder, monkeypatch) -> None:
    monkeypatch.setattr("deepdraft.infer.server.answering.PING_S", 0.02)
    with serving(random_folder, chunk_len=1) as server:
        body = {**LONG, "prompt": "a" * 200, "max_tokens": 2, "stream": True}
        with server.send("/v1/completions", body) as connection:
            content = read_until(connection, b"[DONE]")
        assert content.count(b": ping\n\n") >= 2
        assert content.index(b": ping") < content.index(b"data: ")


def test_health_answers_while_long_prompts_are_worked_on(serving, random_folder) -> None:
    with serving(random_folder, max_context_len=512, chunk_len=8) as server:
        latencies_s: list[float] = []
        is_over = threading.Event()

        def ask_on_and_on() -> None:
            while not is_over.is_set():
                began_s = time.monotonic()
                assert server.get("/health").json == {"status": "ok"}
                latencies_s.append(time.monotonic() - began_s)

        asking = threading.Thread(target=ask_on_and_on)
        asking.start()
        busy = [server.send("/v1/completions", {**LONG, "prompt": "a" * 480, "max_tokens": 8}) for _ in range(4)]
        counting_from_s = time.monotonic()
        too_long = server.complete("word " * 200_000)  # refused once its million characters are tokens
        counting_s = time.monotonic() - counting_from_s
        assert too_long.error["code"] == "context_length_exceeded"
        server.wait_until(lambda: server.service.worker.num_open == 0)
        is_over.set()
        asking.join(30)
        for connection in busy:
            connection.close()
    latencies_s.sort()
    assert latencies_s[len(latencies_s) // 2] < 0.1
    # Whatever holds the interpreter while it counts a million characters shows here.
    assert latencies_s[-1] < max(0.6, 0.5 * counting_s)


def test_one_bad_request_among_many(reciter) -> None:
    bad = [{"prompt": [9999]}, {"prompt": "x" * 300}, {"prompt": "x", "max_tokens": -1}, {"messages": []}]

    def ask(number: int) -> tuple[int, str]:
        if number % 4 == 3:
            return reciter.post("/v1/completions", bad[number // 4 % len(bad)]).status, ""
        reply = reciter.complete("x", max_tokens=18)
        return reply.status, reply.json["choices"][0]["text"]

    with ThreadPoolExecutor(8) as threads:
        results = list(threads.map(ask, range(32)))
    assert [result for number, result in enumerate(results) if number % 4 == 3] == [(400, "")] * 8
    assert [result for number, result in enumerate(results) if number % 4 != 3] == [(200, RECITED)] * 24


@pytest.mark.parametrize("is_stated", [True, False], ids=["stated", "chunked"])
def test_a_body_beyond_the_limit(serving, reciter_folder, is_stated) -> None:
    with serving(reciter_folder, max_body_bytes=1000) as server:
        with socket.create_connection(server.address, 30) as connection:
            head = "POST /v1/completions HTTP/1.1\r\nhost: a\r\n"
            if is_stated:
                connection.sendall(f"{head}content-length: 100000\r\n\r\n".encode())
            else:
                connection.sendall(f"{head}transfer-encoding: chunked\r\n\r\n".encode())
                connection.sendall((b"320\r\n" + b"x" * 800 + b"\r\n") * 3)
            content = read_until(connection, b"body_too_large")
        assert content.startswith(b"HTTP/1.1 413")
        assert server.complete("x", max_tokens=1).status == 200


def test_a_client_that_leaves_while_it_sends(reciter) -> None:
    with socket.create_connection(reciter.address, 30) as connection:
        connection.sendall(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{")
    reciter.wait_until_idle()
    assert reciter.complete("x", max_tokens=1).status == 200
