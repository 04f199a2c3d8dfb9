"""Keeps what the user gave in confidence out of everything that is written or said.

Flags are redacted where the command line is recorded; this is for what comes back: servers and proxies that repeat a
key or a header in their answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from deepdraft.records.redact import REDACTED

_FEWEST_CHARS = 6
"""A shorter header value (`1`, `json`) is no secret, and would be found in half of all numbers."""

T = TypeVar("T")


class Secrets:
    """The values of the headers that are sent."""

    def __init__(self, *headers: Mapping[str, str]) -> None:
        values = {value for each in headers for value in each.values()}
        values |= {word for value in values for word in value.split()}
        # Longest first, so that a part of a value does not break up the whole of it.
        self._values = sorted((value for value in values if len(value) >= _FEWEST_CHARS), key=len, reverse=True)
        self._encoded = [msgspec.json.encode(value)[1:-1] for value in self._values]

    def hidden(self, text: str) -> str:
        """The text without them."""
        for value in self._values:
            text = text.replace(value, REDACTED)
        return text

    def hidden_in(self, record: T) -> T:
        """The record without them; the record itself when none is in it."""
        if not self._values:
            return record
        content = msgspec.json.encode(record)
        if not any(value in content for value in self._encoded):
            return record
        for value in self._encoded:
            content = content.replace(value, REDACTED.encode())
        return msgspec.json.decode(content, type=type(record))
