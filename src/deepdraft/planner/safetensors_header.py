"""Names and stored bytes of a checkpoint's tensors, from the headers of its safetensors files; no tensor is read.

The format: 8 bytes, little endian, of the header's length, then JSON of name -> {dtype, shape, data_offsets}
(huggingface/safetensors, README).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path

from deepdraft.errors import UsageError

_MAX_HEADER_BYTES = 100 * 2**20


def checkpoint_tensors(folder: Path) -> Mapping[str, int]:
    """Stored bytes of every tensor by name, over all files of the folder.

    Raises UsageError where there are none, one can't be read, or a tensor stands in two files (a folder with the same
    weights twice, whole and in shards).
    """
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise UsageError(
            f"no safetensors files in {folder}",
            hint="give the folder of a checkpoint, or config.json with --weight-bytes 554GiB",
        )
    tensors: dict[str, int] = {}
    for file in files:
        for name, num_bytes in _file_tensors(file).items():
            if name in tensors:
                raise UsageError(f"{file}: the tensor {name} is in another file of the folder too")
            tensors[name] = num_bytes
    return tensors


def _file_tensors(file: Path) -> dict[str, int]:
    try:
        with file.open("rb") as stream:
            start = stream.read(8)
            length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
            if not 2 <= length <= _MAX_HEADER_BYTES:
                raise UsageError(f"{file} is not a safetensors file", hint="a Git LFS pointer? fetch the file itself")
            header = json.loads(stream.read(length))
    except (OSError, ValueError) as error:
        raise UsageError(f"can't read the header of {file}: {error}") from None
    try:
        return {
            name: entry["data_offsets"][1] - entry["data_offsets"][0]
            for name, entry in header.items()
            if name != "__metadata__"
        }
    except (TypeError, KeyError, IndexError, AttributeError):
        raise UsageError(f"{file} is not a safetensors file: its header has no data_offsets") from None
