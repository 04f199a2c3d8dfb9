"""The API key: who is let in where, and that it shows nowhere."""

from __future__ import annotations

import logging

import pytest

KEY = "sk-vErYsEcReT-0123456789"


@pytest.fixture(scope="module")
def locked(serving, reciter_folder):
    with serving(reciter_folder, api_key=KEY) as server:
        yield server


def bearer(key: str, scheme: str = "Bearer") -> dict[str, str]:
    return {"authorization": f"{scheme} {key}"}


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_what_load_balancers_ask_is_open(locked, path) -> None:
    assert locked.get(path).status == 200


@pytest.mark.parametrize(
    "path", ["/v1/models", "/metrics", "/server_info", "/flush_cache", "/version", "/v1/completions", "/nowhere"]
)
def test_everything_else_needs_the_key(locked, path) -> None:
    reply = locked.get(path)
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert reply.error["code"] == "invalid_api_key"
    assert locked.get(path, headers=bearer(KEY)).status != 401


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer(""),
        bearer(KEY[:-1]),
        bearer(KEY + "x"),
        bearer(KEY.lower()),
        bearer(KEY, "Basic"),
        {"authorization": KEY},
        bearer("schlüssel"),
        {"x-api-key": KEY},
    ],
)
def test_wrong_keys(locked, headers) -> None:
    assert locked.complete("x", max_tokens=1).status == 401
    assert locked.post("/v1/completions", {"prompt": "x"}, headers=headers).status == 401


def test_the_right_key(locked) -> None:
    for scheme in ("Bearer", "bearer"):
        reply = locked.post("/v1/completions", {"prompt": "x", "max_tokens": 1}, headers=bearer(KEY, scheme))
        assert reply.status == 200


def test_the_key_shows_nowhere(locked, caplog) -> None:
    with caplog.at_level(logging.DEBUG):
        pages = [locked.get(path, headers=bearer(KEY)) for path in ("/server_info", "/metrics", "/v1/models")]
        pages.append(locked.post("/v1/completions", b"{", headers=bearer(KEY)))
        pages.append(locked.post("/v1/completions", b"{", headers=bearer(KEY + "x")))
    assert all(KEY.encode() not in page.body for page in pages)
    assert KEY not in caplog.text
    assert KEY not in repr(locked.server) + repr(locked.service)


def test_every_answer_has_an_id(locked) -> None:
    replies = [locked.get("/health"), locked.get("/metrics"), locked.get("/health")]
    assert len({reply.headers["x-request-id"] for reply in replies}) == 3
