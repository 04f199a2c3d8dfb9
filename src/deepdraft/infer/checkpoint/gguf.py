"""A GGUF file's metadata and tensors, by the format's own specification (ggml/docs/gguf.md, versions 2 and 3).

The file is mapped, not read: opening costs the metadata alone, and a tensor costs its own bytes when it is asked for.
What the metadata means for a model is `gguf_config`'s; how blocks become numbers is `gguf_block`'s.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.gguf_block import BLOCKS, dequantised
from deepdraft.infer.errors import UnsupportedModel

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMENSIONS = 4
_HINT = "was it copied or downloaded in full?"

_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_SCALAR_FORMATS = {kind: struct.Struct(f"<{letter}") for kind, letter in _SCALARS.items()}
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """Where one tensor lies. `shape` has the outermost dimension first, as torch has it (GGUF writes it reversed)."""

    name: str
    shape: tuple[int, ...]
    block_type: str
    """Q4_1, F32 ... as ggml calls them"""
    start: int
    num_bytes: int


class GgufFile:
    """One file: `metadata` by key, `tensors` by name."""

    def __init__(self, path: Path) -> None:
        """Raises UsageError for a file that is no whole GGUF file, UnsupportedModel for a block type without code."""
        self.path = path
        with path.open("rb") as file:
            if path.stat().st_size < len(_MAGIC):
                raise UsageError(f"{path} is not a GGUF file: it is too short")
            self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            self.metadata, self.tensors = _read(self._mapped, path)
        except (struct.error, _Garbled, UnicodeDecodeError, OverflowError, RecursionError) as error:
            raise UsageError(f"{path} is broken: its metadata ends early or is garbled", hint=_HINT) from error

    def array(self, name: str) -> NDArray[np.float32]:
        """A tensor's numbers, dequantised: float32 of its own, [*shape]."""
        tensor = self.tensors[name]
        raw = np.frombuffer(self._mapped, dtype=np.uint8, count=tensor.num_bytes, offset=tensor.start)
        return dequantised(raw, tensor.block_type).reshape(tensor.shape)


class _Garbled(Exception):
    """A value that no GGUF file has."""


def _read(mapped: mmap.mmap, path: Path) -> tuple[dict[str, Any], dict[str, GgufTensor]]:
    if mapped[:4] != _MAGIC:
        raise UsageError(f"{path} is not a GGUF file: it begins with {mapped[:4]!r}")
    cursor = _Cursor(mapped, position=4)
    version = cursor.scalar(4)
    if version not in _VERSIONS:
        raise UnsupportedModel("GGUF version", version, reason="supported are 2 and 3, little-endian")
    num_tensors, num_keys = cursor.scalar(10), cursor.scalar(10)
    metadata = {cursor.string(): cursor.value() for _ in range(num_keys)}
    listed = [(cursor.string(), cursor.shape(), cursor.scalar(4), cursor.scalar(10)) for _ in range(num_tensors)]
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise _Garbled(f"alignment {alignment}")
    start = -(-cursor.position // alignment) * alignment
    tensors = {name: _tensor(name, shape, kind, start + offset) for name, shape, kind, offset in listed}
    for tensor in tensors.values():
        if tensor.start + tensor.num_bytes > len(mapped):
            raise UsageError(f"{path} is broken: it ends before tensor {tensor.name} does", hint=_HINT)
    return metadata, tensors


def _tensor(name: str, shape: tuple[int, ...], kind: int, start: int) -> GgufTensor:
    block = BLOCKS.get(kind)
    if block is None:
        supported = ", ".join(block.name for block in BLOCKS.values())
        raise UnsupportedModel(f"block type of {name}", _block_name(kind), reason=f"supported are {supported}")
    if shape[-1] % block.num_weights:
        raise UsageError(f"tensor {name} has rows of {shape[-1]}, which blocks of {block.num_weights} don't fill")
    num_bytes = math.prod(shape) // block.num_weights * block.num_bytes
    return GgufTensor(name=name, shape=shape, block_type=block.name, start=start, num_bytes=num_bytes)


def _block_name(kind: int) -> str:
    """ggml's name for a type that is not read here, where it is a well-known one."""
    names = {10: "Q2_K", 11: "Q3_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL"}
    names |= {21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4"}
    return names.get(kind, f"type {kind}")


class _Cursor:
    """Reads values one after the other."""

    def __init__(self, mapped: mmap.mmap, position: int) -> None:
        self.position = position
        self._mapped = mapped

    def scalar(self, kind: int) -> Any:
        form = _SCALAR_FORMATS[kind]
        (value,) = form.unpack_from(self._mapped, self.position)
        self.position += form.size
        return value

    def string(self) -> str:
        return self._strings(1)[0]

    def shape(self) -> tuple[int, ...]:
        num_dimensions = self.scalar(4)
        if not 0 < num_dimensions <= _MAX_DIMENSIONS:
            raise _Garbled(f"{num_dimensions} dimensions")
        return tuple(self.scalar(10) for _ in range(num_dimensions))[::-1]

    def value(self) -> Any:
        kind = self.scalar(4)
        return self._value(kind)

    def _value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind in _SCALARS:
            return self.scalar(kind)
        if kind != _ARRAY:
            raise _Garbled(f"value of type {kind}")
        item_kind, length = self.scalar(4), self.scalar(10)
        if length > len(self._mapped) - self.position:
            raise _Garbled(f"array of {length}")
        if item_kind == _STRING:
            return self._strings(length)
        if item_kind in _SCALARS:
            return self._scalars(item_kind, length)
        return [self._value(item_kind) for _ in range(length)]

    def _scalars(self, kind: int, length: int) -> list[Any]:
        form = struct.Struct(f"<{length}{_SCALARS[kind]}")
        values = form.unpack_from(self._mapped, self.position)
        self.position += form.size
        return list(values)

    def _strings(self, length: int) -> list[str]:
        """A vocabulary has a hundred thousand of these: the loop is bare for speed."""
        mapped, position, read_length = self._mapped, self.position, _LENGTH.unpack_from
        end_of_file = len(mapped)
        strings = []
        for _ in range(length):
            start = position + 8
            position = start + read_length(mapped, position)[0]
            if position > end_of_file:
                raise _Garbled("string beyond the end")
            strings.append(mapped[start:position].decode("utf-8"))
        self.position = position
        return strings
