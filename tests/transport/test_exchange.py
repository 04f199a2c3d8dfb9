"""Time limits: what each waits for, what prolongs it, and what is kept when it is reached."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from deepdraft.errors import Stalled
from deepdraft.transport.client import Client
from deepdraft.transport.connection import Connection
from deepdraft.transport.endpoint import Endpoint
from deepdraft.transport.exchange import Ending, Exchange, TimeLimits

ROLE, TEXT, PING = b"data: role\n\n", b"data: text\n\n", b": ping\n\n"


@asynccontextmanager
async def opened(server: Any) -> AsyncIterator[Connection]:
    async with Client(Endpoint("http", "127.0.0.1", server.port)) as client, await client.open() as connection:
        yield connection


def is_text(payload: bytes) -> bool:
    return payload == b"text"


def stalled(
    loopback: Any, script: Iterable[Any], limits: TimeLimits, **options: Any
) -> tuple[Stalled, Exchange, Any]:
    """Run one stream that must reach a limit, and long before the script ends by itself."""

    async def work() -> tuple[Stalled, Exchange, Any]:
        async with loopback.serve(script) as server, opened(server) as connection:
            exchange = connection.stream("/v1/completions", b"{}", limits=limits, **options)
            with pytest.raises(Stalled) as raised:
                await exchange.wait_end()
            assert not connection.is_ready
            assert time.monotonic() - exchange.sent_at < 5
            return raised.value, exchange, server

    result: tuple[Stalled, Exchange, Any] = loopback.run(work())
    return result


def finished(loopback: Any, script: Iterable[Any], limits: TimeLimits, **options: Any) -> Exchange:
    async def work() -> Exchange:
        async with loopback.serve(script) as server, opened(server) as connection:
            exchange = connection.stream("/v1/completions", b"{}", limits=limits, **options)
            await exchange.wait_end()
            return exchange

    result: Exchange = loopback.run(work())
    return result


def test_no_answer_at_all(loopback: Any) -> None:
    error, exchange, _ = stalled(loopback, [9.0], TimeLimits(first_event_limit_s=0.1))
    assert error.message == "POST /v1/completions: no answer within 100 ms"
    assert (exchange.ending, exchange.fault, exchange.status) == (Ending.ABORTED, error.message, None)
    assert exchange.end_at is not None
    assert exchange.end_at - exchange.sent_at >= 0.1


def test_a_head_that_never_ends(loopback: Any) -> None:
    error, exchange, _ = stalled(
        loopback, [b"HTTP/1.1 200 OK\r\n", *[0.03, b"x-slow: 1\r\n"] * 40], TimeLimits(first_event_limit_s=0.4)
    )
    assert error.message == "POST /v1/completions: no output within 400 ms"
    assert exchange.num_reads > 2


def test_pings_do_not_prolong_the_wait_for_the_first_event(loopback: Any) -> None:
    script = [loopback.event_head(), *[0.03, loopback.chunk(PING)] * 40]
    error, exchange, _ = stalled(loopback, script, TimeLimits(first_event_limit_s=0.4))
    assert exchange.num_comments > 2
    assert error.message == (
        "POST /v1/completions: no output within 400 ms "
        f"(status 200, 0 events and {exchange.num_comments} comments before)"
    )


def test_an_event_without_output_does_not_end_the_wait_for_the_first(loopback: Any) -> None:
    script = [loopback.event_head(), loopback.chunk(ROLE), 9.0]
    error, exchange, _ = stalled(
        loopback, script, TimeLimits(first_event_limit_s=0.4, stall_limit_s=0.05), is_output=is_text
    )
    assert "no output within 400 ms (status 200, 1 events before)" in error.message
    assert [event.data for event in exchange.events] == [b"role"]
    assert exchange.first_output_at is None


def test_a_long_prefill_is_no_stall(loopback: Any) -> None:
    script = [loopback.event_head(), loopback.chunk(ROLE), 0.3, loopback.chunk(TEXT) + loopback.END]
    exchange = finished(loopback, script, TimeLimits(stall_limit_s=0.1), is_output=is_text)
    assert exchange.ending is Ending.COMPLETE
    assert exchange.first_output_at == exchange.events[1].at


@pytest.mark.parametrize("pieces", [[PING], [b":\n\n"], [b": a\r\n\r\n"], [b": p", b"ing\n", b"\n"]])
def test_a_stall_after_the_first_output_although_pings_come(loopback: Any, pieces: list[bytes]) -> None:
    pings = [step for piece in pieces for step in (0.03, loopback.chunk(piece))] * 40
    script = [loopback.event_head(), loopback.chunk(TEXT), *pings]
    error, exchange, _ = stalled(loopback, script, TimeLimits(stall_limit_s=0.2))
    assert "nothing more came for 200 ms (status 200, 1 events and" in error.message
    assert exchange.events[0].data == b"text"
    assert exchange.end_at is not None
    assert exchange.end_at - exchange.events[0].at >= 0.2


def test_progress_puts_the_stall_limit_off(loopback: Any) -> None:
    # Each pause is well within the limit, all together are beyond it; the long event comes in bits.
    slow = [step for piece in (b"da", b"ta: ", b"te", b"xt", b"\n", b"\n") for step in (0.1, loopback.chunk(piece))]
    script = [loopback.event_head(), loopback.chunk(TEXT), *slow, loopback.END]
    exchange = finished(loopback, script, TimeLimits(stall_limit_s=0.4))
    assert [event.data for event in exchange.events] == [b"text", b"text"]
    assert exchange.end_at is not None
    assert exchange.end_at - exchange.events[0].at > 0.4


def test_the_total_limit_stops_a_stream_that_goes_on(loopback: Any) -> None:
    script = [loopback.event_head(), *[loopback.chunk(TEXT), 0.02] * 100]
    error, exchange, _ = stalled(loopback, script, TimeLimits(stall_limit_s=1.0, total_limit_s=0.4))
    assert "not finished within 400 ms (status 200," in error.message
    assert len(exchange.events) > 2


def test_an_error_body_that_does_not_end(loopback: Any) -> None:
    script = [loopback.head("content-length: 100", status="500 Internal Server Error") + b'{"error":', 9.0]
    error, exchange, _ = stalled(loopback, script, TimeLimits(stall_limit_s=0.1))
    assert "nothing more came for 100 ms (status 500, 9 bytes before)" in error.message
    assert (exchange.status, exchange.body) == (500, b'{"error":')


def test_without_limits_a_late_first_event_is_waited_for(loopback: Any) -> None:
    exchange = finished(
        loopback, [0.2, loopback.event_head(), 0.2, loopback.chunk(TEXT) + loopback.END], TimeLimits()
    )
    assert exchange.first_output_at is not None
    assert exchange.first_output_at - exchange.sent_at >= 0.4


def test_a_limit_that_is_not_reached_leaves_nothing_behind(loopback: Any) -> None:
    async def work() -> None:
        script = [loopback.event_head(), loopback.chunk(TEXT) + loopback.END]
        limits = TimeLimits(first_event_limit_s=0.4, stall_limit_s=0.4, total_limit_s=0.4)

        def paced(asked: Any) -> list[Any]:
            return script if "first" in asked.first_line else [0.6, *script]

        async with loopback.serve(paced) as server, opened(server) as connection:
            first = connection.stream("/first", b"{}", limits=limits)
            await first.wait_end()
            second = connection.stream("/second", b"{}")
            await second.wait_end()  # 0.6 s: the first one's timer would have fired into it
        assert (first.ending, second.ending) == (Ending.COMPLETE, Ending.COMPLETE)

    loopback.run(work())
