"""A GGUF file of the same values in float32, so that llama.cpp computes with the weights that our server has.

Reading is left to the `gguf` package and its dequantisation: nothing of ours has a part in what the peer gets.
"""

from __future__ import annotations

from pathlib import Path

import gguf

_FILE_TYPE = "general.file_type"
_OWN = ("GGUF.", "general.architecture", _FILE_TYPE)
"""Fields that the writer sets by itself, and the one that changes."""


def write_float32(source: Path, target: Path) -> None:
    """Write `target` with the metadata of `source` and all its tensors dequantised."""
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target, arch=architecture)
    for field in reader.fields.values():
        if not field.name.startswith(_OWN):
            kind, *element_kinds = field.types
            writer.add_key_value(
                field.name, field.contents(), kind, sub_type=element_kinds[-1] if element_kinds else None
            )
    writer.add_uint32(_FILE_TYPE, gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
