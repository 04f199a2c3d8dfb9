"""A GGUF file's model: its shape from the metadata, its bytes from the sizes of its tensors.

The format is ggml's docs/gguf.md, versions 2 and 3; what the keys mean for a model's cache is
`gguf_shape`'s. Long arrays (vocabularies) are passed over, tensors not read.
"""

from __future__ import annotations

import mmap
import re
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deepdraft.errors import UsageError
from deepdraft.planner.gguf_shape import shape_of_metadata
from deepdraft.planner.shape import Model, Weights

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_DEFAULT_ALIGNMENT = 32
_LONGEST_KEPT = 1024
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")
_HINT = "was it copied or downloaded in full?"


def open_gguf(path: Path) -> Model:
    """The model of a GGUF file; of one split into several, name any part.

    Raises UsageError for a file that is none, is broken, lacks a part, or holds a kind of attention not known here.
    """
    parts = _parts(path)
    metadata, total_bytes = _header(parts[0])
    for part in parts[1:]:
        total_bytes += _header(part)[1]
    shape = shape_of_metadata(metadata, path.name.removesuffix(".gguf"))
    return Model(
        shape=shape,
        weights=Weights(total_bytes=total_bytes, is_exact=True, source=f"tensors of {path.name}"),
    )


def _parts(path: Path) -> list[Path]:
    found = _SPLIT.search(path.name)
    if not found:
        return [path]
    stem, count = path.name[: found.start()], int(found[2])
    parts = [path.with_name(f"{stem}-{number:05}-of-{count:05}.gguf") for number in range(1, count + 1)]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise UsageError(f"{path.name} is one of {count} parts, and {missing[0]} is not beside it")
    return parts


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """The metadata, and the bytes of all tensors."""
    if not path.is_file():
        raise UsageError(f"no such model file: {path}")
    with path.open("rb") as file:
        if path.stat().st_size < 24:
            raise UsageError(f"{path} is not a GGUF file: it is too short")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            try:
                return _read(mapped, path)
            except (struct.error, UnicodeDecodeError, OverflowError, KeyError) as error:
                raise UsageError(f"{path} is broken: its metadata ends early or is garbled", hint=_HINT) from error


def _read(mapped: mmap.mmap, path: Path) -> tuple[dict[str, Any], int]:
    if mapped[:4] != b"GGUF":
        raise UsageError(f"{path} is not a GGUF file: it begins with {mapped[:4]!r}")
    cursor = _Cursor(mapped)
    version = cursor.scalar(4)
    if version not in (2, 3):
        raise UsageError(f"{path} is of GGUF version {version}", hint="versions 2 and 3, little-endian, are known")
    num_tensors, num_keys = cursor.scalar(10), cursor.scalar(10)
    metadata = {cursor.string(): cursor.value() for _ in range(num_keys)}
    for _ in range(num_tensors):
        cursor.string()
        num_dimensions = cursor.scalar(4)
        cursor.position += 8 * num_dimensions + 4 + 8  # dimensions, type, offset
    alignment = int(metadata.get("general.alignment", _DEFAULT_ALIGNMENT))
    start = -(-cursor.position // alignment) * alignment if num_tensors else cursor.position
    if start > len(mapped):
        raise UsageError(f"{path} is broken: it ends before its tensors", hint=_HINT)
    return metadata, len(mapped) - start


class _Cursor:
    """Reads values one after the other; of a long array the length alone."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self.position = 4
        self._mapped = mapped

    def scalar(self, kind: int) -> Any:
        form = struct.Struct("<" + _SCALARS[kind])
        (value,) = form.unpack_from(self._mapped, self.position)
        self.position += form.size
        return value

    def string(self) -> str:
        length = self.scalar(10)
        start, self.position = self.position, self.position + length
        if self.position > len(self._mapped):
            raise struct.error("string beyond the end")
        return self._mapped[start : self.position].decode("utf-8")

    def value(self) -> Any:
        return self._value(self.scalar(4))

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        return self._array() if kind == _ARRAY else self.scalar(kind)

    def _array(self) -> Any:
        kind, length = self.scalar(4), self.scalar(10)
        if length <= _LONGEST_KEPT:
            return [self._value(kind) for _ in range(length)]
        if kind in _SCALARS:
            self.position += length * struct.calcsize("<" + _SCALARS[kind])
        else:
            for _ in range(length):
                self._value(kind)
        return LongArray(length)


@dataclass(frozen=True, slots=True)
class LongArray:
    """In place of an array too long to matter here: a vocabulary, its scores."""

    num_items: int

    def __len__(self) -> int:
        return self.num_items
