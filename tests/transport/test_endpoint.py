"""URLs as people paste them."""

from __future__ import annotations

import pytest

from deepdraft.errors import UsageError
from deepdraft.transport.endpoint import Endpoint, endpoint


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000", Endpoint("http", "127.0.0.1", 8000)),
        ("127.0.0.1:8000", Endpoint("http", "127.0.0.1", 8000)),
        ("localhost", Endpoint("http", "localhost", 80)),
        ("localhost:8000/v1", Endpoint("http", "localhost", 8000)),
        (" HTTPS://Example.COM ", Endpoint("https", "example.com", 443)),
        ("http://[::1]:8000/", Endpoint("http", "::1", 8000)),
        ("[::1]:8000", Endpoint("http", "::1", 8000)),
        ("https://[fe80::1]", Endpoint("https", "fe80::1", 443)),
        ("https://host/prefix/v1", Endpoint("https", "host", 443, "/prefix")),
        ("https://host/prefix/v1/", Endpoint("https", "host", 443, "/prefix")),
        ("https://host//prefix//", Endpoint("https", "host", 443, "/prefix")),
        ("https://host/v1/chat/completions", Endpoint("https", "host", 443)),
        ("https://host/a/v1/completions/", Endpoint("https", "host", 443, "/a")),
        ("https://host/v1/account/v1/models", Endpoint("https", "host", 443, "/v1/account")),
        ("https://host/v10", Endpoint("https", "host", 443, "/v10")),
        ("https://host/api/v3", Endpoint("https", "host", 443, "/api/v3")),
        ("http://höst.example:1", Endpoint("http", "xn--hst-sna.example", 1)),
    ],
)
def test_what_is_accepted(url: str, expected: Endpoint) -> None:
    assert endpoint(url) == expected


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("", "no URL"),
        ("   ", "no URL"),
        ("http://", "no host"),
        ("http://:8000", "no host"),
        ("ftp://host", "'ftp'"),
        ("http://host:port", "not a URL"),
        ("http://host:99999", "not a URL"),
        ("http://host:0", "not a port"),
        ("http://::1:8000", "brackets"),
        ("::1", "brackets"),
        ("http://[::zz]:8000", "IPv6|not a URL"),
        ("http://[::1", "not a URL"),
        ("http://user:secret@host/v1", "user name or password"),
        ("user:secret@host", "user name or password"),
        ("http://host/v1?key=secret", "query"),
        ("http://host/#secret", "fragment"),
        ("http://ho st/", "no host"),
        ("http://ö..x", "not a host name"),
        ("http://host/a b", "escaped"),
        ("http://host/ä", "escaped"),
    ],
)
def test_what_is_refused_and_why(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        endpoint(url)
    assert "secret" not in f"{refused.value.message} {refused.value.hint}"


def test_what_is_formed_from_it() -> None:
    server = endpoint("https://host/prefix/v1")
    assert server.target("/v1/models") == "/prefix/v1/models"
    assert server.target("/health") == "/prefix/health"
    assert (server.url, server.authority, server.address) == ("https://host/prefix", "host", "host:443")
    server = endpoint("[fe80::1%25eth0]:8000")
    assert (server.host, server.authority, server.address) == (
        "fe80::1%eth0",
        "[fe80::1]:8000",
        "[fe80::1%eth0]:8000",
    )
    assert endpoint("http://host:443").authority == "host:443"


@pytest.mark.parametrize("path", ["health", "", "/a b", "/a\r\nx: y", "/ä"])
def test_a_path_that_cannot_be_sent_is_a_mistake_of_the_caller(path: str) -> None:
    with pytest.raises(ValueError, match="not a path"):
        endpoint("host").target(path)
