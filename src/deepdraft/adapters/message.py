"""What a server says when it does not do what was asked: its own words, whatever shape they come in.

Shapes seen: nested `{"error": {"message": ...}}` (vLLM, llama.cpp, OpenAI), flat
`{"object": "error", "message": ...}` (SGLang, TensorRT-LLM, LMDeploy), a bare string `{"error": "Unauthorized"}`
(vLLM's key check, TGI), `{"detail": ...}` as a string or as FastAPI's list of complaints, an HTML page, plain text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from deepdraft.adapters.json_text import decoded, writable_text

MESSAGE_LIMIT = 500
"""Characters kept of a server's words."""

_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_HEADING = re.compile(r"<h1[^>]*>(.*?)</h1>", re.IGNORECASE | re.DOTALL)
_TAG = re.compile(r"<[^>]*>")
_HTML = re.compile(rb"\s*(?:<!doctype html|<html|<head|<body)", re.IGNORECASE)


def error_message(status: int, body: bytes) -> str:
    """One line: the status and the server's own words (at most MESSAGE_LIMIT characters)."""
    words = server_words(body)
    if not words:
        try:
            words = HTTPStatus(status).phrase
        except ValueError:
            words = "no reason given"
    return f"HTTP {status}: {words}"


def server_words(body: bytes) -> str:
    """The words in an answer's body, "" when there are none."""
    if not body.strip():
        return ""
    title = page_title(body)
    if title is not None:
        return _shortened(f"an HTML page titled {title!r}" if title else "an HTML page")
    try:
        value = decoded(body)
    except ValueError:
        return _shortened(body.decode("utf-8", "replace"))
    return error_words(value)


def error_words(error: Any) -> str:
    """The words in a decoded error: a string, an object of any known shape, or a list of complaints."""
    return _shortened(_words(error))


def page_title(body: bytes) -> str | None:
    """The title (else the first heading) of an HTML page, "" when it has none; None when this is no HTML page."""
    if not _HTML.match(body):
        return None
    text = body[:65_536].decode("utf-8", "replace")
    match = _TITLE.search(text) or _HEADING.search(text)
    return " ".join(html.unescape(_TAG.sub(" ", match[1])).split()) if match else ""


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds of a Retry-After header; None when absent or given as a date. Header names in lower case."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if 0 <= seconds < 1e6 else None


def _words(error: Any) -> str:
    if isinstance(error, str):
        return error
    if isinstance(error, list):
        return "; ".join(words for words in (_words(entry) for entry in error) if words)
    if not isinstance(error, dict):
        return "" if error is None else str(error)
    if "msg" in error and "loc" in error:
        return _complaint(error)
    for key in ("error", "message", "detail", "msg", "error_message", "error_type", "type"):
        words = _words(error.get(key))
        if words:
            return words
    return str(error) if error else ""


def _complaint(complaint: dict[str, Any]) -> str:
    """One entry of FastAPI's list: `stream_options.foo: Extra inputs are not permitted`."""
    location = complaint["loc"]
    parts = [str(part) for part in location if part != "body"] if isinstance(location, list) else [str(location)]
    return f"{'.'.join(parts)}: {complaint['msg']}" if parts else str(complaint["msg"])


def _shortened(words: str) -> str:
    words = " ".join(writable_text(words).split())
    return words if len(words) <= MESSAGE_LIMIT else words[: MESSAGE_LIMIT - 1] + "…"
