"""Short requests, the pool, TLS, and what is raised when a server can't be reached."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from deepdraft.errors import DeepdraftError, NotAnApi, ServerLost, Stalled, Unreachable, UsageError
from deepdraft.transport.client import Client
from deepdraft.transport.connection import Connection
from deepdraft.transport.endpoint import Endpoint, endpoint
from deepdraft.transport.exchange import Ending
from deepdraft.transport.tls import TlsOptions


def serve_each(*answers: Callable[[socket.socket], object]) -> int:
    """Let a thread take one connection for each answer, with plain sockets that do only what they are told."""
    listener = socket.create_server(("127.0.0.1", 0))

    def take() -> None:
        with listener:
            for answer in answers:
                with listener.accept()[0] as taken, contextlib.suppress(OSError):
                    taken.settimeout(5)
                    answer(taken)

    threading.Thread(target=take, daemon=True).start()
    port: int = listener.getsockname()[1]
    return port


def at(server: Any, scheme: str = "http", host: str = "127.0.0.1") -> Endpoint:
    return Endpoint(scheme, host, server.port)


def test_get_and_post(loopback: Any) -> None:
    async def work() -> None:
        async with loopback.serve(
            lambda asked: [loopback.whole(asked.body or b"{}", "x-a: b", status="404 No")]
        ) as server:
            async with Client(at(server), headers={"X-Key": "k"}) as client:
                got = await client.get("/v1/models", headers={"Accept": "application/json"})
                posted = await client.post("/tokenize", b'{"a":1}')
                empty = await client.post("/flush_cache", headers={"content-type": "text/plain"})
            assert (got.status, got.body, got.headers["x-a"]) == (404, b"{}", "b")
            assert (posted.body, empty.body) == (b'{"a":1}', b"{}")
            assert 0 < got.elapsed_s < 5
            first, second, third = server.asked
            assert first.first_line == "GET /v1/models HTTP/1.1"
            assert (first.headers["accept"], first.headers["x-key"]) == ("application/json", "k")
            assert "content-length" not in first.headers
            assert second.first_line == "POST /tokenize HTTP/1.1"
            assert second.headers["content-type"] == "application/json"
            assert (third.headers["content-type"], third.headers["content-length"]) == ("text/plain", "0")
            assert server.num_connections == 1

    loopback.run(work())


def test_requests_at_the_same_time_have_connections_of_their_own(loopback: Any) -> None:
    async def work() -> None:
        async with loopback.serve([0.05, loopback.whole(b"ok")]) as server, Client(at(server)) as client:
            await asyncio.gather(*(client.get("/health") for _ in range(3)))
            await asyncio.gather(*(client.get("/health") for _ in range(3)))
            assert server.num_connections == 3

    loopback.run(work())


def test_close_closes_what_was_kept(loopback: Any) -> None:
    async def work() -> None:
        async with loopback.serve([loopback.whole(b"ok")]) as server:
            client = Client(at(server))
            await client.get("/health")
            assert not server.lost.is_set()
            await client.close()
            await asyncio.wait_for(server.lost.wait(), 5)

    loopback.run(work())


@pytest.mark.parametrize("fields", [["connection: close"], []])
def test_a_connection_that_will_be_closed_is_not_kept(loopback: Any, fields: list[str]) -> None:
    async def work() -> None:
        answer = loopback.head(*fields, *(["content-length: 2"] if fields else [])) + b"ok"
        async with loopback.serve([answer, loopback.CLOSE]) as server, Client(at(server)) as client:
            for _ in range(2):
                assert (await client.get("/health")).body == b"ok"
            assert server.num_connections == 2

    loopback.run(work())


def dies_at_second_request(loopback: Any) -> Any:
    """Answers the first request of its first connection and drops that connection at the second."""

    def script(asked: Any) -> list[Any]:
        is_second = asked.connection_index == 0 and "/first" not in asked.first_line
        return [loopback.RESET] if is_second else [loopback.whole(b"ok")]

    return script


def test_a_get_on_a_kept_connection_that_died_is_asked_again(loopback: Any) -> None:
    async def work() -> None:
        async with loopback.serve(dies_at_second_request(loopback)) as server, Client(at(server)) as client:
            await client.get("/first")
            assert (await client.get("/second")).body == b"ok"
            assert [asked.first_line for asked in server.asked] == [
                "GET /first HTTP/1.1",
                "GET /second HTTP/1.1",
                "GET /second HTTP/1.1",
            ]

    loopback.run(work())


def test_a_post_that_may_have_been_done_is_not_sent_again(loopback: Any) -> None:
    async def work() -> None:
        async with loopback.serve(dies_at_second_request(loopback)) as server, Client(at(server)) as client:
            await client.get("/first")
            with pytest.raises(Unreachable, match=r"without answering POST /flush_cache: Connection reset by peer"):
                await client.post("/flush_cache")
            assert len(server.asked) == 2

    loopback.run(work())


def test_a_get_is_not_asked_a_third_time(loopback: Any) -> None:
    async def work() -> None:
        def script(asked: Any) -> list[Any]:
            return [loopback.whole(b"ok")] if "/first" in asked.first_line else [loopback.CLOSE]

        async with loopback.serve(script) as server, Client(at(server)) as client:
            await client.get("/first")
            with pytest.raises(Unreachable, match="closed the connection without answering GET /second") as raised:
                await client.get("/second")
            assert raised.value.hint is None  # it answered before, so it is no matter of TLS
            assert len(server.asked) == 3

    loopback.run(work())


def test_a_close_that_came_while_the_process_was_busy_is_seen_before_a_post(loopback: Any) -> None:
    may_close, has_closed = threading.Event(), threading.Event()

    def answer_and_close(taken: socket.socket) -> None:
        taken.recv(65_536)
        taken.sendall(loopback.whole(b"ok"))
        may_close.wait(5)

    def tell(taken: socket.socket) -> None:
        has_closed.set()

    def answer(taken: socket.socket) -> None:
        taken.recv(65_536)
        taken.sendall(loopback.whole(b"done"))

    async def work() -> None:
        port = serve_each(answer_and_close, tell, answer)
        async with Client(Endpoint("http", "127.0.0.1", port)) as client:
            await client.get("/first")
            may_close.set()
            # The loop does not turn here, as if a prompt were being made: nobody looks at the socket.
            with socket.create_connection(("127.0.0.1", port)):
                assert has_closed.wait(5)
            assert (await client.post("/second")).body == b"done"

    loopback.run(work())


def test_a_connection_kept_too_long_is_not_used(loopback: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deepdraft.transport.client._MAX_IDLE_S", 0.02)

    async def work() -> None:
        async with loopback.serve([loopback.whole(b"ok")]) as server, Client(at(server)) as client:
            await client.get("/health")
            await asyncio.sleep(0.05)
            await client.get("/health")
            assert server.num_connections == 2

    loopback.run(work())


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", CLOSE := "close"], ServerLost, "short after 39 bytes"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", 0.02, "reset"], ServerLost, "Connection reset by peer"),
        ([CLOSE], Unreachable, "without answering GET /health"),
        ([b"220 ready\r\n"], NotAnApi, "with bytes: not HTTP"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 99999999\r\n\r\n" + b"x" * 17_000_000], NotAnApi, "16777216 bytes"),
        (
            [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{", 9.0],
            Stalled,
            "only 39 bytes of an answer within 300 ms",
        ),
        ([9.0], Stalled, "no answer within 300 ms"),
    ],
)
def test_answers_that_do_not_come_whole(
    loopback: Any, answer: list[Any], error: type[DeepdraftError], said: str
) -> None:
    async def work() -> None:
        async with loopback.serve(answer) as server, Client(at(server)) as client:
            with pytest.raises(error, match=said) as raised:
                await client.get("/health", timeout_s=0.3 if error is Stalled else 10.0)
            assert str(server.port) in raised.value.message
            assert len(server.asked) == 1

    loopback.run(work())


def test_giving_up_a_request_closes_its_socket(loopback: Any) -> None:
    async def work() -> None:
        async with loopback.serve([0.05]) as server, Client(at(server)) as client:
            asking = asyncio.ensure_future(client.get("/health"))
            await asyncio.sleep(0.02)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            await asyncio.wait_for(server.lost.wait(), 5)

    loopback.run(work())


def test_nothing_listens(loopback: Any) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(Unreachable) as raised:
                loopback.run(Client(Endpoint("http", host, port)).get("/health"))
            assert raised.value.message == f"can't reach {host}:{port}: Connection refused"
            assert "is the server up" in str(raised.value.hint)


def test_a_name_that_does_not_exist(loopback: Any) -> None:
    with pytest.raises(Unreachable, match=r"can't reach nowhere\.invalid:80: ") as raised:
        loopback.run(Client(endpoint("nowhere.invalid")).open())
    assert "'nowhere.invalid' could not be looked up" in str(raised.value.hint)


def test_no_connection_within_the_limit(loopback: Any) -> None:
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(silent, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, Client(Endpoint("https", "127.0.0.1", port), connect_limit_s=0.2) as client:
            started_at = time.monotonic()
            with pytest.raises(Unreachable, match="no connection within 200 ms"):
                await client.open()
            with pytest.raises(Unreachable, match="no connection within 100 ms"):
                await client.get("/health", timeout_s=0.1)
            assert time.monotonic() - started_at < 5

    loopback.run(work())


def test_opening_ahead(loopback: Any) -> None:
    async def work() -> None:
        async with loopback.serve([loopback.whole(b"ok")]) as server, Client(at(server)) as client:
            before_at = time.monotonic()
            connection = await client.open()
            assert isinstance(connection, Connection)
            assert 0 < connection.connect_s <= time.monotonic() - before_at
            assert connection.is_ready
            assert server.asked == []
            await connection.close()
            await connection.close()
            assert not connection.is_ready

    loopback.run(work())


def test_a_connection_opened_ahead_that_the_server_closed(loopback: Any) -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async def work() -> None:
        server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server, Client(Endpoint("http", "127.0.0.1", port)) as client, await client.open() as connection:
            await asyncio.sleep(0.05)
            assert not connection.is_ready
            with pytest.raises(Unreachable, match="closed the connection before POST /v1/x was sent"):
                connection.stream("/v1/x", b"{}")

    loopback.run(work())


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_ipv6(loopback: Any) -> None:
    async def work() -> None:
        async with loopback.serve([loopback.whole(b"ok")], host="::1") as server:
            async with Client(endpoint(f"http://[::1]:{server.port}/v1")) as client:
                assert (await client.get("/health")).body == b"ok"
            assert server.asked[0].headers["host"] == f"[::1]:{server.port}"

    loopback.run(work())


# TLS


def tls_answer(
    loopback: Any, context: Any, options: TlsOptions, script: list[Any] | None = None
) -> tuple[int, bytes]:
    async def work() -> tuple[int, bytes]:
        client = Client(Endpoint("https", "127.0.0.1", 1), tls=options)
        async with loopback.serve(script or [loopback.whole(b"ok")], tls=context) as server, client:
            client.endpoint = at(server, "https")
            await client.get("/health")
            response = await client.get("/health")
            assert server.num_connections == 1
            return response.status, response.body

    result: tuple[int, bytes] = loopback.run(work())
    return result


def test_tls_with_a_trusted_authority(loopback: Any, certificates: Any) -> None:
    options = TlsOptions(ca_file=certificates.ca_file)
    assert tls_answer(loopback, certificates.server, options) == (200, b"ok")


def test_tls_insecure_trusts_anyone(loopback: Any, certificates: Any) -> None:
    assert tls_answer(loopback, certificates.server_of_another_name, TlsOptions(insecure=True)) == (200, b"ok")


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("system", "certificate not trusted: (self-signed|unable to get)"),
        ("other_ca_file", "certificate not trusted: (self-signed|unable to get)"),
        ("ca_file", "certificate not trusted: IP address mismatch"),
    ],
)
def test_tls_with_a_certificate_not_trusted(loopback: Any, certificates: Any, which: str, said: str) -> None:
    options = TlsOptions() if which == "system" else TlsOptions(ca_file=getattr(certificates, which))
    with pytest.raises(Unreachable, match=said) as raised:
        tls_answer(loopback, certificates.server_of_another_name, options)
    assert "turn verification off" in str(raised.value.hint)


def test_tls_with_a_client_certificate(loopback: Any, certificates: Any) -> None:
    options = TlsOptions(ca_file=certificates.ca_file, client_cert_file=certificates.client_file)
    assert tls_answer(loopback, certificates.server_wanting_client, options) == (200, b"ok")


def test_tls_without_the_client_certificate_that_is_wanted(loopback: Any, certificates: Any) -> None:
    def refuse(taken: socket.socket) -> None:
        served = certificates.server_wanting_client.wrap_socket(
            taken, server_side=True, do_handshake_on_connect=False
        )
        try:
            served.do_handshake()
        except ssl.SSLError:
            socket.socket.recv(served, 65_536)  # a close with bytes unread would destroy the alert on its way

    port = serve_each(refuse)
    client = Client(Endpoint("https", "127.0.0.1", port), tls=TlsOptions(ca_file=certificates.ca_file))
    with pytest.raises(Unreachable, match=r"TLS: .*certificate required"):
        loopback.run(client.get("/health"))


def test_https_to_a_server_of_plain_http(loopback: Any) -> None:
    def refuse(taken: socket.socket) -> None:
        taken.recv(65_536)
        taken.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    port = serve_each(refuse)
    with pytest.raises(Unreachable, match="TLS: ") as raised:
        loopback.run(Client(Endpoint("https", "127.0.0.1", port)).get("/health"))
    assert "try http://" in str(raised.value.hint)


def test_http_to_a_server_of_tls(loopback: Any, certificates: Any) -> None:
    async def work() -> None:
        async with loopback.serve([], tls=certificates.server) as server, Client(at(server)) as client:
            with pytest.raises(Unreachable, match="without answering GET /health") as raised:
                await client.get("/health")
            assert "try https://" in str(raised.value.hint)

    loopback.run(work())


def test_a_connection_over_tls_that_is_closed_before_an_answer(loopback: Any, certificates: Any) -> None:
    with pytest.raises(Unreachable, match="without answering GET /health") as raised:
        tls_answer(loopback, certificates.server, TlsOptions(insecure=True), [loopback.CLOSE])
    assert "client certificate" in str(raised.value.hint)


def test_http_to_a_server_of_tls_that_says_so_in_tls(loopback: Any) -> None:
    def refuse(taken: socket.socket) -> None:
        taken.recv(65_536)
        taken.sendall(b"\x15\x03\x01\x00\x02\x02\x46")

    port = serve_each(refuse)
    with pytest.raises(NotAnApi, match="not HTTP") as raised:
        loopback.run(Client(Endpoint("http", "127.0.0.1", port)).get("/health"))
    assert "try https://" in str(raised.value.hint)


def test_a_stream_over_tls_with_a_large_body(loopback: Any, certificates: Any) -> None:
    async def work() -> None:
        events = b"".join(loopback.chunk(b"data: %d\n\n" % number) for number in range(2_000))
        script = [loopback.event_head(), events, 0.01, loopback.END]
        body = b"x" * 4_000_000
        async with loopback.serve(script, tls=certificates.server) as server:
            options = TlsOptions(ca_file=certificates.ca_file)
            async with Client(at(server, "https"), tls=options) as client, await client.open() as connection:
                exchange = connection.stream("/v1/completions", body)
                await exchange.wait_end()
            assert server.asked[0].body == body
        assert [int(event.data) for event in exchange.events] == list(range(2_000))
        assert exchange.ending is Ending.COMPLETE
        assert exchange.written_at is not None
        assert exchange.first_byte_at is not None
        assert exchange.sent_at < exchange.written_at <= exchange.first_byte_at

    loopback.run(work())


@pytest.mark.parametrize("ends", ["close", "reset"])
def test_a_stream_over_tls_that_is_cut(loopback: Any, certificates: Any, ends: str) -> None:
    async def work() -> None:
        script = [loopback.event_head(), loopback.chunk(b"data: a\n\ndata"), 0.02, ends]
        async with loopback.serve(script, tls=certificates.server) as server:
            client = Client(at(server, "https"), tls=TlsOptions(insecure=True))
            async with client, await client.open() as connection:
                exchange = connection.stream("/v1/completions", b"{}")
                await exchange.wait_end()
        assert exchange.ending is (Ending.CLOSED if ends == "close" else Ending.RESET)
        assert ([event.data for event in exchange.events], exchange.leftover) == ([b"a"], b"data")

    loopback.run(work())


def test_an_encrypted_client_key_is_refused_rather_than_asked_for(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    encryption = serialization.BestAvailableEncryption(b"secret")
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    certificate = trustme.CA().issue_cert("client").cert_chain_pems[0].bytes()
    (tmp_path / "client.pem").write_bytes(pem + certificate)
    with pytest.raises(UsageError, match="encrypted"):
        Client(endpoint("https://host"), tls=TlsOptions(client_cert_file=tmp_path / "client.pem"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (TlsOptions(ca_file=Path("absent.pem")), "absent.pem: No such file"),
        (TlsOptions(ca_file=Path(__file__)), "test_client.py: "),
        (TlsOptions(client_cert_file=Path("absent.pem")), "absent.pem: No such file"),
        (TlsOptions(client_cert_file=Path(__file__)), "test_client.py: "),
        (TlsOptions(client_key_file=Path("key.pem")), "needs its certificate"),
    ],
)
def test_tls_files_that_cannot_be_used(options: TlsOptions, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        Client(endpoint("https://host"), tls=options)
