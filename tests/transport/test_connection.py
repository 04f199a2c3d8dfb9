"""Streams over real sockets: framing, cuts, stamps, and how each ending is told."""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deepdraft.errors import Unreachable, UsageError
from deepdraft.transport.client import Client
from deepdraft.transport.connection import MAX_ERROR_BODY_BYTES, Connection
from deepdraft.transport.endpoint import Endpoint
from deepdraft.transport.exchange import Ending, Exchange

STREAM = 'data: {"text":"tïef"}\n\ndata:{"text":"深い"}\r\n\r\n: ping\n\ndata: [DONE]\n\n'.encode()
PAYLOADS = ['{"text":"tïef"}'.encode(), '{"text":"深い"}'.encode(), b"[DONE]"]


@asynccontextmanager
async def opened(server: Any) -> AsyncIterator[Connection]:
    async with Client(Endpoint("http", "127.0.0.1", server.port)) as client, await client.open() as connection:
        yield connection


def exchange_of(
    loopback: Any, script: Callable[[Any], Iterable[Any]] | Iterable[Any], **options: Any
) -> tuple[Exchange, Any]:
    """One stream request to a server with that script, run to its end."""

    async def work() -> tuple[Exchange, Any]:
        async with loopback.serve(script) as server, opened(server) as connection:
            exchange = connection.stream("/v1/completions", b"{}", **options)
            await exchange.wait_end()
            return exchange, server

    result: tuple[Exchange, Any] = loopback.run(work())
    return result


def payloads(exchange: Exchange) -> list[bytes]:
    return [event.data for event in exchange.events if not event.is_comment]


def test_a_stream_is_told_with_all_its_stamps(loopback: Any) -> None:
    script = [loopback.event_head("x-request-id: 7"), 0.01, loopback.chunk(STREAM), 0.01, loopback.END]
    exchange, server = exchange_of(loopback, script)
    (asked,) = server.asked
    assert payloads(exchange) == PAYLOADS
    assert (exchange.num_comments, len(exchange.events)) == (1, 4)
    assert (exchange.status, exchange.http_version, exchange.headers["x-request-id"]) == (200, "1.1", "7")
    assert (exchange.ending, exchange.fault, exchange.leftover, exchange.body) == (Ending.COMPLETE, None, b"", b"")
    assert exchange.is_event_stream
    assert exchange.num_bytes == sum(len(step) for step in script if isinstance(step, bytes))
    assert exchange.num_reads == 3
    assert exchange.written_at is not None
    assert exchange.first_byte_at is not None
    assert exchange.end_at is not None
    assert exchange.sent_at <= exchange.written_at <= asked.received_at
    assert asked.writes_at[0] <= exchange.first_byte_at == exchange.head_at <= asked.writes_at[1]
    assert asked.writes_at[1] <= exchange.events[0].at == exchange.first_output_at == exchange.last_progress_at
    assert exchange.events[0].at <= asked.writes_at[2] <= exchange.end_at


@pytest.mark.parametrize(
    ("fields", "version", "is_chunked", "stays_open"),
    [
        (["transfer-encoding: chunked"], "1.1", True, True),
        (["transfer-encoding: chunked", "connection: close"], "1.1", True, False),
        ([f"content-length: {len(STREAM)}"], "1.1", False, True),
        ([], "1.1", False, False),
        ([], "1.0", False, False),
        ([f"content-length: {len(STREAM)}"], "1.0", False, False),
        ([f"content-length: {len(STREAM)}", "connection: keep-alive"], "1.0", False, True),
    ],
)
def test_every_framing_gives_the_same_events(
    loopback: Any, fields: list[str], version: str, is_chunked: bool, stays_open: bool
) -> None:
    head = loopback.head("Content-Type: text/event-stream; charset=utf-8", *fields, version=version)
    pieces = [STREAM[start : start + 7] for start in range(0, len(STREAM), 7)]
    body = [loopback.chunk(piece) for piece in pieces] + [loopback.END] if is_chunked else pieces
    delimits_by_closing = not any("length" in field or "encoding" in field for field in fields)

    async def work() -> None:
        script = [head, *body, *([loopback.CLOSE] if delimits_by_closing else [])]
        async with loopback.serve(script) as server, opened(server) as connection:
            exchange = connection.stream("/v1/completions", b"{}")
            await exchange.wait_end()
            assert payloads(exchange) == PAYLOADS
            assert exchange.ending is Ending.COMPLETE
            assert exchange.http_version == version
            assert connection.is_ready is stays_open
            if stays_open:
                again = connection.stream("/v1/completions", b"{}")
                await again.wait_end()
                assert payloads(again) == PAYLOADS
                assert (server.num_connections, connection.num_exchanges) == (1, 2)
            else:
                await connection.close()
                with pytest.raises(Unreachable, match=r"closed the connection before POST /v1/completions was sent"):
                    connection.stream("/v1/completions", b"{}")

    loopback.run(work())


def test_an_event_cut_by_reads_has_the_stamp_of_the_read_that_completed_it(loopback: Any) -> None:
    middle_of_a_character = STREAM.index("深".encode()) + 1
    script = [
        loopback.event_head() + loopback.chunk(STREAM[:middle_of_a_character]),
        0.02,
        loopback.chunk(STREAM[middle_of_a_character:]) + loopback.END,
    ]
    exchange, server = exchange_of(loopback, script)
    assert payloads(exchange) == PAYLOADS
    assert [event.read_index for event in exchange.events] == [0, 1, 1, 1]
    assert exchange.events[0].at < server.asked[0].writes_at[1] <= exchange.events[1].at
    assert exchange.events[1].at == exchange.events[3].at == exchange.end_at


def test_bytes_cut_anywhere_even_within_the_framing(loopback: Any) -> None:
    answer = loopback.event_head() + b"".join(loopback.chunk(bytes([byte])) for byte in STREAM) + loopback.END
    steps: list[Any] = []
    for start in range(0, len(answer), 5):
        steps += [answer[start : start + 5], 0.0]
    exchange, _ = exchange_of(loopback, steps)
    assert payloads(exchange) == PAYLOADS
    assert exchange.ending is Ending.COMPLETE


def test_an_event_larger_than_any_buffer(loopback: Any) -> None:
    payload = b"x" * 3_000_000
    exchange, _ = exchange_of(
        loopback, [loopback.event_head(), loopback.chunk(b"data: " + payload + b"\n\n"), loopback.END]
    )
    assert payloads(exchange) == [payload]
    assert exchange.num_reads > 3_000_000 // 65_536


@pytest.mark.parametrize("type_field", ["content-type: text/plain", "content-type: application/octet-stream", "x: y"])
def test_events_under_a_type_that_does_not_say_so(loopback: Any, type_field: str) -> None:
    exchange, _ = exchange_of(loopback, [loopback.whole(STREAM, type_field)])
    assert payloads(exchange) == PAYLOADS
    assert exchange.body == STREAM


@pytest.mark.parametrize(
    ("status", "type_field", "body"),
    [
        ("500 Internal Server Error", "content-type: application/json", b'{"error":{"message":"out of memory"}}'),
        ("401 Unauthorized", "content-type: text/plain", b"Unauthorized"),
        ("429 Too Many Requests", "content-type: text/event-stream", b'data: {"error":"slow down"}\n\n'),
        ("307 Temporary Redirect", "location: http://127.0.0.1:1/elsewhere", b""),
        ("200 OK", "content-type: text/html", b"<html><body>Welcome</body></html>"),
        ("200 OK", "content-type: application/json", b'{"object":"error"}'),
    ],
)
def test_an_answer_that_is_no_event_stream_is_kept_whole(
    loopback: Any, status: str, type_field: str, body: bytes
) -> None:
    exchange, server = exchange_of(loopback, [loopback.whole(body, type_field, status=status)])
    assert (exchange.status, exchange.body, exchange.events) == (int(status[:3]), body, [])
    assert exchange.ending is Ending.COMPLETE
    assert not exchange.is_event_stream
    name, _, value = type_field.partition(": ")
    assert exchange.headers[name] == value
    assert len(server.asked) == 1


def test_the_body_of_an_error_is_kept_up_to_its_limit(loopback: Any) -> None:
    page = b"<html>" + b"x" * (2 * MAX_ERROR_BODY_BYTES)
    exchange, _ = exchange_of(loopback, [loopback.whole(page, "content-type: text/html", status="502 Bad Gateway")])
    assert exchange.body == page[:MAX_ERROR_BODY_BYTES]
    assert (exchange.ending, exchange.status) == (Ending.ABORTED, 502)
    assert "1048576 bytes" in str(exchange.fault)


def test_an_answer_before_the_answer_is_passed_over(loopback: Any) -> None:
    early = loopback.head(status="100 Continue") + loopback.head("link: </a>", status="103 Early Hints")
    exchange, _ = exchange_of(loopback, [early, 0.01, loopback.event_head(), loopback.chunk(STREAM) + loopback.END])
    assert (exchange.status, payloads(exchange)) == (200, PAYLOADS)
    assert "link" not in exchange.headers
    assert exchange.first_byte_at is not None
    assert exchange.head_at is not None
    assert exchange.first_byte_at < exchange.head_at


def test_a_field_sent_twice_keeps_both_values(loopback: Any) -> None:
    exchange, _ = exchange_of(loopback, [loopback.whole(b"{}", "X-Warning: a", "x-warning: b", status="400 Bad")])
    assert exchange.headers["x-warning"] == "a, b"


@pytest.mark.parametrize(
    ("framing", "cut_at"),
    [("transfer-encoding: chunked", 10), ("content-length: 1000", 10), ("content-length: 9", 0)],
)
def test_a_stream_cut_by_the_server(loopback: Any, framing: str, cut_at: int) -> None:
    body = STREAM[: len(STREAM) - 10] if cut_at else b""
    if "chunked" in framing:
        body = b"%x\r\n%s" % (len(STREAM), body)
    exchange, _ = exchange_of(
        loopback, [loopback.head("content-type: text/event-stream", framing) + body, loopback.CLOSE]
    )
    assert (exchange.ending, exchange.fault) == (Ending.CLOSED, None)
    assert payloads(exchange) == (PAYLOADS[:2] if cut_at else [])
    assert exchange.leftover == (b"data" if cut_at else b"")
    assert exchange.end_at is not None


def test_a_cut_between_chunks_is_a_cut_although_no_event_is_torn(loopback: Any) -> None:
    exchange, _ = exchange_of(loopback, [loopback.event_head(), loopback.chunk(STREAM), loopback.CLOSE])
    assert (exchange.ending, exchange.leftover) == (Ending.CLOSED, b"")


def test_a_reset_says_so_in_the_systems_words(loopback: Any) -> None:
    exchange, _ = exchange_of(loopback, [loopback.event_head(), loopback.chunk(STREAM[:30]), 0.02, loopback.RESET])
    assert (exchange.ending, exchange.fault) == (Ending.RESET, "Connection reset by peer")
    assert payloads(exchange) == PAYLOADS[:1]
    assert exchange.leftover == STREAM[:30].partition(b"\n\n")[2]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", "not HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "not HTTP"),
        (
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n\x00\x00",
            "another protocol",
        ),
        (b"HTTP/1.1 200 OK\r\n" + b"x-filler: 0123456789\r\n" * 20_000, "headers of more than"),
    ],
)
def test_bytes_that_are_not_http(loopback: Any, answer: bytes, said: str) -> None:
    exchange, _ = exchange_of(loopback, [answer, 5.0])
    assert exchange.ending is Ending.MALFORMED
    assert said in str(exchange.fault)


def test_the_request_as_the_server_gets_it(loopback: Any) -> None:
    async def work() -> None:
        async with loopback.serve([loopback.whole(b"")]) as server:
            endpoint = Endpoint("http", "127.0.0.1", server.port, "/prefix")
            headers = {"Authorization": "Bearer k", "X-Route": "a", "User-Agent": "mine"}
            async with Client(endpoint, headers=headers) as client, await client.open() as connection:
                body = json.dumps({"prompt": "tief"}).encode()
                await connection.stream("/v1/completions", body, {"X-ROUTE": "b"}).wait_end()
        (asked,) = server.asked
        assert asked.first_line == "POST /prefix/v1/completions HTTP/1.1"
        assert asked.headers == {
            "host": f"127.0.0.1:{server.port}",
            "user-agent": "mine",
            "accept": "text/event-stream",
            "accept-encoding": "identity",
            "authorization": "Bearer k",
            "x-route": "b",
            "content-type": "application/json",
            "content-length": str(len(body)),
        }
        assert asked.body == body
        # Head and body came together: they were written in one go.
        assert asked.first_read_bytes == len(asked.head) + 4 + len(body)

    loopback.run(work())


def test_a_body_that_the_kernel_does_not_take_at_once(loopback: Any) -> None:
    async def work() -> None:
        body = b"x" * 12_000_000
        async with loopback.serve([loopback.whole(b"ok")], reads_after_s=0.1) as server, opened(server) as connection:
            exchange = connection.stream("/v1/completions", body)
            unsent = exchange.written_at
            await exchange.wait_end()
        assert unsent is None
        (asked,) = server.asked
        assert asked.body == body
        assert exchange.written_at is not None
        assert exchange.written_at - exchange.sent_at >= 0.09
        # The loop learns of it after the kernel, and on a busy machine after the server too.
        assert exchange.written_at <= asked.received_at + 0.1

    loopback.run(work())


def test_an_answer_before_the_request_was_wholly_sent_ends_the_connection(loopback: Any) -> None:
    async def work() -> None:
        async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(loopback.whole(b"too large", status="413 Content Too Large"))
            await gone.wait()
            writer.close()

        gone = asyncio.Event()
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        client = Client(Endpoint("http", "127.0.0.1", server.sockets[0].getsockname()[1]))
        async with server, client, await client.open() as connection:
            exchange = connection.stream("/v1/completions", b"x" * 40_000_000)
            await exchange.wait_end()
            assert (exchange.status, exchange.body, exchange.ending) == (413, b"too large", Ending.COMPLETE)
            assert exchange.written_at is None
            assert not connection.is_ready
            gone.set()

    loopback.run(work())


def test_one_exchange_at_a_time(loopback: Any) -> None:
    async def work() -> None:
        async with loopback.serve([5.0]) as server, opened(server) as connection:
            connection.stream("/v1/completions", b"{}")
            assert not connection.is_ready
            with pytest.raises(RuntimeError, match="one exchange at a time"):
                connection.stream("/v1/completions", b"{}")

    loopback.run(work())


@pytest.mark.parametrize("pause_s", [None, 0.02])
def test_bytes_nobody_asked_for_end_the_connection(loopback: Any, pause_s: float | None) -> None:
    async def work() -> None:
        stray = loopback.whole(b"stray")
        steps = [loopback.whole(b"asked") + stray] if pause_s is None else [loopback.whole(b"asked"), pause_s, stray]
        async with loopback.serve(steps) as server, opened(server) as connection:
            exchange = connection.request("GET", "/health")
            await exchange.wait_end()
            assert exchange.body == b"asked"
            await asyncio.wait_for(server.lost.wait(), 5)
            assert not connection.is_ready

    loopback.run(work())


@pytest.mark.parametrize("way", ["exchange", "connection", "cancel", "leave"])
def test_giving_up_closes_the_socket_at_once(loopback: Any, way: str) -> None:
    async def work() -> None:
        async with loopback.serve(lambda _: [loopback.event_head(), loopback.chunk(STREAM), 0.4]) as server:
            async with opened(server) as connection:
                exchange = connection.stream("/v1/completions", b"{}")
                waiting = asyncio.ensure_future(exchange.wait_end())
                assert await exchange.wait_first_output()
                given_up_at = time.monotonic()
                if way == "exchange":
                    exchange.abort()
                elif way == "connection":
                    connection.abort()
                elif way == "cancel":
                    waiting.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await waiting
                if way != "leave":
                    await asyncio.wait_for(server.lost.wait(), 5)
            await asyncio.wait_for(server.lost.wait(), 5)
            assert exchange.ending is Ending.ABORTED
            assert exchange.fault == "given up by the caller"
            assert payloads(exchange) == PAYLOADS
            assert exchange.end_at is not None
            assert exchange.end_at - given_up_at < 0.3  # not when the server has had its pause
            if way != "cancel":
                await waiting

    loopback.run(work())


def test_waiting_for_the_first_output(loopback: Any) -> None:
    async def work() -> None:
        steps = [
            loopback.event_head(),
            loopback.chunk(b": ping\n\ndata: role\n\n"),
            0.05,
            loopback.chunk(b"data: text\n\n"),
        ]
        async with loopback.serve([*steps, loopback.END]) as server, opened(server) as connection:
            exchange = connection.stream("/v1/completions", b"{}", is_output=lambda data: data == b"text")
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(exchange.wait_first_output(), 0.01)
            assert exchange.end_at is None
            assert await exchange.wait_first_output()
            await exchange.wait_end()
            assert exchange.first_output_at == exchange.events[-1].at >= server.asked[0].writes_at[-2]
            assert await exchange.wait_first_output()
            without = connection.stream("/v1/completions", b"{}", is_output=lambda _: False)
            assert not await without.wait_first_output()
            assert without.ending is Ending.COMPLETE

    loopback.run(work())


def test_what_is_output_raises_reaches_the_waiter(loopback: Any) -> None:
    async def work() -> None:
        def is_output(data: bytes) -> bool:
            raise LookupError(data.decode())

        script = [loopback.event_head(), loopback.chunk(STREAM), 0.01]
        async with loopback.serve(script) as server, opened(server) as connection:
            exchange = connection.stream("/v1/completions", b"{}", is_output=is_output)
            with pytest.raises(LookupError, match="tïef"):
                await exchange.wait_end()
            assert exchange.ending is Ending.ABORTED
            await asyncio.wait_for(server.lost.wait(), 5)

    loopback.run(work())


def test_an_exchange_that_is_kept_does_not_keep_its_connection(loopback: Any) -> None:
    async def work() -> tuple[Exchange, weakref.ref[Connection]]:
        async with loopback.serve([loopback.event_head(), loopback.chunk(STREAM) + loopback.END]) as server:
            async with opened(server) as connection:
                exchange = connection.stream("/v1/completions", b"{}", is_output=lambda _: True)
                await exchange.wait_end()
            return exchange, weakref.ref(connection)

    exchange, connection = loopback.run(work())
    gc.collect()
    assert payloads(exchange) == PAYLOADS
    assert connection() is None


@pytest.mark.parametrize("name", ["", "a b", "a:", "ä", "a\n"])
def test_a_header_name_that_cannot_be_sent(name: str) -> None:
    with pytest.raises(UsageError, match="name"):
        Client(Endpoint("http", "127.0.0.1", 1), headers={name: "secret"})


@pytest.mark.parametrize("value", ["secret\r\nx: y", "secret\0", "secret 深"])
def test_a_header_value_that_cannot_be_sent_is_not_repeated(value: str) -> None:
    with pytest.raises(UsageError, match="'x-key'") as refused:
        Client(Endpoint("http", "127.0.0.1", 1), headers={"x-key": value})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("num_streams", [1, 16])
def test_stamps_agree_with_the_servers_own(loopback: Any, num_streams: int, least_disturbed: Any) -> None:
    """Every event is written alone, so its stamp can be held against the server's stamp before the write."""
    num_events = 40

    async def work() -> tuple[list[Exchange], Any]:
        event = loopback.chunk(b'data: {"choices":[{"delta":{"content":" deep"}}]}\n\n')
        script = [loopback.event_head(), *[0.005, event] * num_events, 0.005, loopback.END]
        async with loopback.serve(script) as server, Client(Endpoint("http", "127.0.0.1", server.port)) as client:
            connections = [await client.open() for _ in range(num_streams)]
            exchanges = [connection.stream("/v1/completions", b"{}") for connection in connections]
            for exchange, connection in zip(exchanges, connections, strict=True):
                await exchange.wait_end()
                await connection.close()
            return exchanges, server

    def median_s() -> float:
        exchanges, server = loopback.run(work())
        # Requests were taken in the order of the connections, so both lists are in the same order.
        late_s = [
            event.at - written_at
            for exchange, asked in zip(exchanges, server.asked, strict=True)
            for event, written_at in zip(exchange.events, asked.writes_at[1:], strict=False)
        ]
        assert len(late_s) == num_streams * num_events
        assert min(late_s) >= 0
        return statistics.median(late_s)

    # Server and client share one loop here, so of a burst each event waits for the writes of the others.
    limit_s = 0.001 if num_streams == 1 else 0.004
    assert least_disturbed(median_s, float, enough=limit_s) < limit_s
