"""Reads single values out of a server's JSON, which may hold anything: each reader gives None or an empty object for
what it was not told. Whole documents are `json_text`'s."""

from __future__ import annotations

from typing import Any


def object_of(value: Any) -> dict[str, Any]:
    """The value when it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def whole(value: Any, at_least: int = 1) -> int | None:
    """The value as a whole number when it is one (also written as text), not below `at_least`; else None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        value = int(value) if value.isdigit() else None
    if isinstance(value, float) and value == int(value):
        value = int(value)
    return value if isinstance(value, int) and value >= at_least else None


def text_of(value: Any) -> str | None:
    """The value when it is text with anything in it, else None."""
    return value if isinstance(value, str) and value else None


def ids_of(value: Any) -> list[int] | None:
    """The value when it is a list of token ids, else None."""
    if isinstance(value, list) and all(isinstance(entry, int) and not isinstance(entry, bool) for entry in value):
        return value
    return None
