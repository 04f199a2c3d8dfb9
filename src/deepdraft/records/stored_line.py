"""The lines of a file on disk as records, whatever kinds of records it holds; what can't be read is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from deepdraft.errors import ResultsError
from deepdraft.records.schema_version import SCHEMA_VERSION


@dataclass(frozen=True)
class Stamp:
    """What every line says of itself."""

    kind: str
    schema_version: int


stamp_decoder = msgspec.json.Decoder(Stamp)


class _Newer(Exception):
    def __init__(self, version: int) -> None:
        self.version = version


def read_content(path: Path) -> bytes:
    """All of the file. Raises ResultsError when it can't be read or is empty."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ResultsError(f"can't read {path}: {error.strerror}") from None
    if not content.strip():
        raise ResultsError(f"{path} is empty: nothing was measured")
    return content


def first_kind(content: bytes) -> str | None:
    """The kind of record that the first line says it is; None where it isn't one of ours."""
    try:
        return stamp_decoder.decode(content.lstrip().split(b"\n", 1)[0]).kind
    except msgspec.MsgspecError:
        return None


def stored_records(path: Path, content: bytes, types: Mapping[str, type[Any]]) -> tuple[list[Any], list[str]]:
    """The records in order, and a sentence for each line that is none of these kinds. No more is read after a first
    line that isn't a record: then the file is another tool's.

    Raises ResultsError for a line of a newer version.
    """
    lines = content.split(b"\n")
    records: list[Any] = []
    damage: list[str] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(_record(line, types))
        except _Newer as newer:
            raise ResultsError(
                f"{path} was written by a newer Deepdraft (schema {newer.version}; this one reads {SCHEMA_VERSION})",
                hint="upgrade deepdraft",
            ) from None
        except msgspec.MsgspecError as error:
            where = "the last line is torn" if number == len(lines) else f"line {number} can't be read"
            damage.append(f"{where} ({len(line)} bytes): {error}")
            if not records and first_kind(line) not in types:
                break
    return records, damage


def _record(line: bytes, types: Mapping[str, type[Any]]) -> Any:
    stamp = stamp_decoder.decode(line)
    if stamp.schema_version > SCHEMA_VERSION:
        raise _Newer(stamp.schema_version)
    record_type = types.get(stamp.kind)
    if record_type is None:
        raise msgspec.ValidationError(f"unknown kind {stamp.kind!r}")
    return msgspec.json.decode(line, type=record_type)
