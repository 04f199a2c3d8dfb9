"""An answer of a non-generating endpoint, and how the dialects make one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Query:
    """A request to a non-generating endpoint, with the base path taken off."""

    method: str
    path: str
    arguments: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, content type, body and further headers."""

    status: int
    content_type: str
    body: bytes
    headers: tuple[tuple[str, str], ...] = field(default=())


Endpoint = Callable[[Query], Awaitable[Answer]]


def json_answer(content: Any, status: int = 200) -> Answer:
    """JSON, compact, UTF-8."""
    return Answer(status, "application/json", msgspec.json.encode(content))


def text_answer(text: str, status: int = 200, content_type: str = "text/plain; charset=utf-8") -> Answer:
    """Plain text, or another text type."""
    return Answer(status, content_type, text.encode())
