"""`deepdraft simulate` as a command: it says where it is, serves, and ends when told to."""

from __future__ import annotations

import http.client
import json
import signal
from urllib.parse import urlsplit

import pytest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_told_to_stop(start, port, number) -> None:
    server = start("simulate", "--dialect", "sglang", "--port", port, "--model", "toy")
    server.wait_until_said("simulating; Ctrl-C ends it")
    assert server.child.stdout is not None
    url = server.child.stdout.readline().strip()
    assert url == f"http://127.0.0.1:{port}"
    connection = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=10)
    connection.request("GET", "/v1/models")
    assert json.loads(connection.getresponse().read())["data"][0]["id"] == "toy"
    connection.close()
    server.signal(number)
    ran = server.end()
    assert ran.code == 0
    assert ran.err == "simulating; Ctrl-C ends it\n"


def test_a_port_that_is_taken(called, plain) -> None:
    ran = called("simulate", "--port", urlsplit(plain.url).port)
    assert ran.code == 2
    assert "can't listen on 127.0.0.1" in ran.err
    assert "in use" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--confound", "nonsense"), "no such name: 'nonsense'"),
        (("--fault", "explode"), "no such kind: 'explode'"),
        (("--prefill", "a"), "not a list of numbers"),
        (("--set", "physics"), "is not PART.NAME=VALUE"),
        (("--dialect", "other"), "invalid choice"),
    ],
)
def test_flags_that_can_not_be_used(called, words, message) -> None:
    ran = called("simulate", *words)
    assert ran.code == 2
    assert message in ran.said[0]
