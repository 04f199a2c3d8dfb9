"""The system's words, without what Python adds to them."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from deepdraft.transport.endpoint import Endpoint
from deepdraft.transport.fault import unreachable, words


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)"), "Connection refused"),
        (
            OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 1), [Errno 111] x"),
            "Connection refused",
        ),
        (OSError("Multiple exceptions: [Errno 111] a, [Errno 101] b"), "Connection refused, Network is unreachable"),
        (socket.gaierror(-2, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number (_ssl.c:1)"), "TLS: "),
        (
            ConnectionAbortedError("SSL handshake is taking longer than 60.0 seconds"),
            "SSL handshake is taking longer",
        ),
        (ConnectionResetError(), "ConnectionResetError"),
        (ValueError(), "ValueError"),
    ],
)
def test_words(error: Exception, said: str) -> None:
    assert words(error).startswith(said)


def test_the_hint_belongs_to_the_number() -> None:
    server = Endpoint("http", "host", 80)
    assert "is the network up" in str(unreachable(server, OSError(errno.ENETUNREACH, "x")).hint)
    assert unreachable(server, OSError(errno.EACCES, "x")).hint is None
