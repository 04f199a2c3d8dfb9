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


RECORDED = [
    (
        "llama.cpp-2026-10/error_context_exceeded.json",
        "request (5404 tokens) exceeds the available context size (4096 tokens), try increasing it",
    ),
    (
        "vllm-0.32.0/error_400_over_long.json",
        "This model's maximum context length is 32768 tokens. However, your prompt contains at least 32769 input "
        "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
        "prompt. (parameter=input_tokens, value=32769)",
    ),
    (
        "vllm-0.32.0/error_400_max_tokens.json",
        "max_tokens=40000 cannot be greater than max_model_len=32768. Please request fewer output tokens. "
        "(parameter=max_tokens, value=40000)",
    ),
    (
        "vllm-0.32.0/error_404_model_name.json",
        "The model `other` does not exist. Valid aliases: tiny-llama.",
    ),
    (
        "sglang-0.5.23/error_400_over_long.json",
        "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
    ),
    (
        "sglang-0.5.23/error_400_over_long_generate.json",
        "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
    ),
    ("transformers-5.24.0/error_422_unknown_field.json", "Unexpected fields in the request: {'ignore_eos'}"),
    ("transformers-5.24.0/error_400_model_name.json", "Server is pinned to 'tiny-llama'; requested 'other'."),
    ("transformers-5.24.0/error_400_token_ids.json", "prompt must be a string."),
    ("transformers-5.24.0/error_500.txt", "Internal Server Error"),
]


@pytest.mark.parametrize(("name", "words"), RECORDED)
def test_recorded_refusals(recorded: Any, name: str, words: str) -> None:
    assert error_message(400, recorded.bytes(name)) == f"HTTP 400: {words}"


def test_a_recorded_refusal_with_a_traceback_stays_one_line(recorded: Any) -> None:
    words = server_words(recorded.bytes("sglang-0.5.23/error_400_negative_max_tokens.json"))
    assert "max_tokens must be positive" in words
    assert "\n" not in words


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
