"""A foreign file, read once: its text, and the JSON objects in it, whole ones of a damaged file included."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepdraft.adapters.json_text import decoded
from deepdraft.errors import ResultsError

_LIMIT_BYTES = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The content of one file."""

    name: str
    """Without its folder."""
    sha256: str
    text: str
    objects: tuple[dict[str, Any], ...] = ()
    """The JSON objects: the one, those of a top-level list, or one a line. Empty for what is no JSON."""
    losses: tuple[str, ...] = ()
    """What could not be read, one sentence each; without objects, why there are none."""

    @property
    def first(self) -> dict[str, Any]:
        """The first object; an empty one when there is none."""
        return self.objects[0] if self.objects else {}


def read_document(path: Path) -> Document:
    """Read a file. Raises ResultsError when it can't be read, is empty, or is too large to be a results file."""
    try:
        if path.stat().st_size > _LIMIT_BYTES:
            raise ResultsError(f"{path} is larger than {_LIMIT_BYTES // 10**9} GB: not a results file")
        content = path.read_bytes()
    except OSError as error:
        raise ResultsError(f"can't read {path}: {error.strerror}") from None
    if not content.strip():
        raise ResultsError(f"{path} is empty: there is nothing to import")
    return document_of(path.name, content)


def document_of(name: str, content: bytes) -> Document:
    """The document of a file's bytes. Never raises: what is no JSON has no objects."""
    text = content.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    objects, losses = _objects(text)
    return Document(name=name, sha256=hashlib.sha256(content).hexdigest(), text=text, objects=objects, losses=losses)


def _objects(text: str) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    stripped = text.lstrip()
    if not stripped.startswith("{") and not (stripped.startswith("[") and stripped[1:].lstrip()[:1] in ("{", "]")):
        return (), ()  # a log may begin with "[" and a date
    try:
        whole = decoded(text.encode("utf-8", "replace"))
    except ValueError:
        return _list_in_part(text) if stripped.startswith("[") else _lines(text)
    if isinstance(whole, dict):
        return (whole,), ()
    return tuple(entry for entry in whole if isinstance(entry, dict)), ()


def _lines(text: str) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """One object a line; lines that hold none are lost by number."""
    found: list[dict[str, Any]] = []
    losses: list[str] = []
    lines = text.splitlines()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            value = decoded(line.encode("utf-8", "replace"))
        except ValueError:
            where = "the last line is cut short" if number == len(lines) else f"line {number} can't be read"
            losses.append(f"{where} ({len(line)} characters)")
            continue
        if isinstance(value, dict):
            found.append(value)
        else:
            losses.append(f"line {number} is not a JSON object")
    if not found:
        return (), ("the JSON in it is cut short or damaged",)
    return tuple(found), tuple(losses)


def _list_in_part(text: str) -> tuple[tuple[dict[str, Any], ...], tuple[str, ...]]:
    """The whole entries of a list that breaks off."""
    decoder = json.JSONDecoder()
    found: list[dict[str, Any]] = []
    position = text.index("[") + 1
    while True:
        while position < len(text) and text[position] in " \t\r\n,":
            position += 1
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            break
        if isinstance(value, dict):
            found.append(value)
    rest = len(text) - position
    if not found:
        return (), ("the JSON in it is cut short or damaged",)
    return tuple(found), (f"the list breaks off after {len(found)} entries ({rest} characters could not be read)",)
