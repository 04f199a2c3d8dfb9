"""Keeps secrets out of results files: API keys in flags, headers, URLs and server settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit, urlunsplit

REDACTED = "<redacted>"

_SECRET_NAME = re.compile(
    r"(api|access|admin|auth|private|secret|hf|bearer)[-_]?(key|token|secret)s?$|"
    r"^(authorization|token|password|passwd|passphrase|secret|credentials?|cookie|x-api-key)$",
    re.IGNORECASE,
)
_SECRET_VALUE = re.compile(r"\b(?:sk|hf|ghp|xai|nvapi)[-_][A-Za-z0-9_-]{8,}|(?i:bearer\s+)\S+")
_SECRET_FLAGS = ("--api-key", "--admin-key")


def redacted_command_line(words: Sequence[str]) -> tuple[str, ...]:
    """The command line with keys, header values and passwords in URLs replaced."""
    result: list[str] = []
    hide_next = False
    header_next = False
    for word in words:
        if hide_next:
            result.append(REDACTED)
        elif header_next:
            result.append(_redacted_header(word))
        elif word.startswith(tuple(flag + "=" for flag in _SECRET_FLAGS)):
            result.append(word.split("=", 1)[0] + "=" + REDACTED)
        elif word.startswith("--header="):
            result.append("--header=" + _redacted_header(word.split("=", 1)[1]))
        else:
            result.append(redacted_text(word))
        hide_next = word in _SECRET_FLAGS and not hide_next
        header_next = word == "--header" and not header_next
    return tuple(result)


def _redacted_header(header: str) -> str:
    name, separator, _ = header.partition(":")
    return f"{name}{separator} {REDACTED}" if separator else header


def redacted_text(text: str) -> str:
    """The text with passwords in URLs and anything that looks like a key replaced."""
    if "://" in text and "@" in text:
        text = _without_password(text)
    return _SECRET_VALUE.sub(REDACTED, text)


def _without_password(text: str) -> str:
    try:
        parts = urlsplit(text)
        if parts.password is None and parts.username is None:
            return text
        host = parts.netloc.rpartition("@")[2]
        return urlunsplit(parts._replace(netloc=f"{REDACTED}@{host}"))
    except ValueError:
        return text


def redacted(value: Any) -> Any:
    """A copy of a JSON value with the values of secret-sounding keys replaced, at any depth."""
    if isinstance(value, Mapping):
        return {
            str(key): REDACTED
            if entry not in (None, "", False) and _SECRET_NAME.search(str(key))
            else redacted(entry)
            for key, entry in value.items()
        }
    if isinstance(value, list | tuple):
        return [redacted(entry) for entry in value]
    if isinstance(value, str):
        return redacted_text(value)
    return value
