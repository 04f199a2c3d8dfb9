"""A server's own words, in every shape they come in (C45)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.adapters.message import MESSAGE_LIMIT, error_message, page_title, retry_after_s, server_words


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"error":{"message":"too long","type":"x","code":400}}', "too long"),
        (b'{"object":"error","message":"too long","type":"BadRequestError","code":400}', "too long"),
        (b'{"error":"Unauthorized"}', "Unauthorized"),
        (b'"Unauthorized"', "Unauthorized"),
        (b"Unauthorized", "Unauthorized"),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"error":"inputs must have less than 4096 tokens. Given: 5000","error_type":"validation"}', "inputs must"),
        (b'{"message":"model not found"}', "model not found"),
        (b'{"error":{"code":503}}', "503"),
        (b"<html><head><title>502 Bad\n Gateway</title></head><body>x</body></html>", "titled '502 Bad Gateway'"),
        (b"<!DOCTYPE html><body><h1>Sign &amp; in</h1></body>", "titled 'Sign & in'"),
    ],
)
def test_words(body: bytes, words: str) -> None:
    assert words in server_words(body)


def test_fastapi_complaints_name_their_fields() -> None:
    body = (
        b'{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","x"],"msg":"Extra inputs are not '
        b'permitted","input":true},{"type":"missing","loc":["body","model"],"msg":"Field required"}]}'
    )
    assert server_words(body) == "stream_options.x: Extra inputs are not permitted; model: Field required"


def test_a_recorded_refusal(recorded: Any) -> None:
    body = recorded.bytes("llama.cpp-2026-10/error_context_exceeded.json")
    assert error_message(400, body) == (
        "HTTP 400: request (5404 tokens) exceeds the available context size (4096 tokens), try increasing it"
    )


def test_a_status_without_words_says_what_it_means() -> None:
    assert error_message(413, b"") == "HTTP 413: Request Entity Too Large"
    assert error_message(599, b"  ") == "HTTP 599: no reason given"


def test_long_words_are_cut() -> None:
    assert len(server_words(b"x" * 10_000)) == MESSAGE_LIMIT


def test_page_titles() -> None:
    assert page_title(b'{"a": "<html>"}') is None
    assert page_title(b"  <HTML><TITLE>Login</TITLE>") == "Login"
    assert page_title(b"<html></html>") == ""


def test_retry_after() -> None:
    assert retry_after_s({"retry-after": "7"}) == 7
    assert retry_after_s({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}) is None
    assert retry_after_s({}) is None


@given(st.binary(max_size=300), st.integers(min_value=100, max_value=599))
def test_any_body_makes_one_printable_line(body: bytes, status: int) -> None:
    line = error_message(status, body)
    assert line.startswith(f"HTTP {status}: ")
    assert "\n" not in line
    line.encode()
