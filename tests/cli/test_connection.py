from __future__ import annotations

import argparse

import pytest

from deepdraft.cli.connection import access, add_connection_flags, extra_body, recorded_command_line
from deepdraft.errors import UsageError


def flags(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_connection_flags(parser)
    return parser.parse_args(words)


@pytest.fixture(autouse=True)
def no_key(monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


def test_nothing_is_said_of_what_was_not_given() -> None:
    namespace = flags()
    assert {value for value in vars(namespace).values() if value} == set()
    entry = access(namespace)
    assert (dict(entry.headers), dict(entry.admin_headers)) == ({}, {})
    assert extra_body(namespace) == {}


def test_keys_become_bearer_tokens(monkeypatch) -> None:
    assert access(flags("--api-key", "one")).headers == {"authorization": "Bearer one"}
    monkeypatch.setenv("OPENAI_API_KEY", "two")
    assert access(flags()).headers == {"authorization": "Bearer two"}
    assert access(flags("--api-key", "one")).headers == {"authorization": "Bearer one"}
    assert access(flags("--admin-key", "three")).admin_headers == {"authorization": "Bearer three"}


def test_headers_keep_their_colons() -> None:
    entry = access(flags("--header", "X-Route: a:b", "--header", "x-empty:"))
    assert entry.headers == {"x-route": "a:b", "x-empty": ""}


def test_an_own_authorization_wins_over_the_key() -> None:
    entry = access(flags("--api-key", "one", "--header", "Authorization: Basic dTpw"))
    assert entry.headers == {"authorization": "Basic dTpw"}


@pytest.mark.parametrize("header", ["X-Token s3cret-value", ": s3cret-value"])
def test_what_is_no_header_is_not_repeated(header) -> None:
    with pytest.raises(UsageError) as caught:
        access(flags("--header", header))
    assert "s3cret" not in caught.value.message
    assert caught.value.hint == "write --header 'Name: value'"


@pytest.mark.parametrize("flag", ["--ca-file", "--client-cert", "--client-key"])
def test_a_file_that_is_not_there(flag) -> None:
    with pytest.raises(UsageError, match=r"no such file: nowhere\.pem"):
        access(flags(flag, "nowhere.pem"))


def test_extra_body() -> None:
    assert extra_body(flags("--extra-body", '{"top_k": 1, "a": {"b": null}}')) == {"top_k": 1, "a": {"b": None}}
    with pytest.raises(UsageError, match="not JSON"):
        extra_body(flags("--extra-body", "{top_k: 1}"))
    with pytest.raises(UsageError, match="must be a JSON object"):
        extra_body(flags("--extra-body", "[1]"))


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        (["--extra-body", '{"a": 1, "api_key": "s3cret"}'], ["--extra-body", '{"a": 1, "api_key": "<redacted>"}']),
        (['--extra-body={"password": "s3cret"}'], ['--extra-body={"password": "<redacted>"}']),
        (["--extra-body", "{s3cret"], ["--extra-body", "<redacted>"]),
        (["--api-key", "s3cret", "--header", "A: s3cret"], ["--api-key", "<redacted>", "--header", "A: <redacted>"]),
        (["sweep", "http://u:s3cret@h/v1"], ["sweep", "http://<redacted>@h/v1"]),
        (["--context-len", "1k,4k"], ["--context-len", "1k,4k"]),
    ],
)
def test_the_command_line_is_kept_without_secrets(words, kept) -> None:
    assert list(recorded_command_line(words)) == kept
