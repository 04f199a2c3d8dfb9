from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_writing import write_gguf

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.gguf import GgufFile
from deepdraft.infer.errors import UnsupportedModel


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf", stated={"tokenizer.ggml.merges": ["a b", "é 😀"]})


def test_a_written_file_as_the_gguf_package_reads_it(path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the package gguf, the other reader, is not installed")
    file, expected = GgufFile(path), gguf.GGUFReader(path)
    fields = {name: field for name, field in expected.fields.items() if not name.startswith("GGUF.")}
    assert file.metadata == {name: field.contents() for name, field in fields.items()}
    assert [(t.name, t.shape, t.block_type, t.start) for t in file.tensors.values()] == [
        (t.name, tuple(t.shape.tolist()[::-1]), t.tensor_type.name, t.data_offset) for t in expected.tensors
    ]
    for tensor in expected.tensors:
        np.testing.assert_array_equal(file.array(tensor.name), tensor.data)


def test_smollm2(smollm2_path: Path) -> None:
    # As the gguf package lists it; that reader takes seconds over this file.
    file = GgufFile(smollm2_path)
    assert len(file.metadata) == 33
    assert Counter(tensor.block_type for tensor in file.tensors.values()) == {"Q4_1": 210, "F32": 61, "Q8_0": 1}
    assert file.metadata["llama.attention.head_count_kv"] == 3
    assert file.metadata["tokenizer.ggml.tokens"][:3] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert Counter(file.metadata["tokenizer.ggml.token_type"]) == {1: 49_135, 3: 17}
    assert len(file.metadata["tokenizer.ggml.merges"]) == 48_900
    assert max(tensor.start + tensor.num_bytes for tensor in file.tensors.values()) == smollm2_path.stat().st_size
    norm = file.array("output_norm.weight")
    assert norm.shape == (576,)
    assert 0.1 < np.abs(norm).mean() < 10


def test_arrays_within_arrays_and_every_kind_of_number(tmp_path: Path) -> None:
    def string(text: str) -> bytes:
        return struct.pack("<Q", len(text.encode())) + text.encode()

    values: dict[str, tuple[int, bytes, Any]] = {
        "u8": (0, struct.pack("<B", 200), 200),
        "i8": (1, struct.pack("<b", -3), -3),
        "u16": (2, struct.pack("<H", 65535), 65535),
        "i16": (3, struct.pack("<h", -5), -5),
        "u32": (4, struct.pack("<I", 2**32 - 1), 2**32 - 1),
        "i32": (5, struct.pack("<i", -6), -6),
        "f32": (6, struct.pack("<f", 0.5), 0.5),
        "bool": (7, b"\x01", True),
        "text": (8, string("naïve"), "naïve"),
        "u64": (10, struct.pack("<Q", 2**63), 2**63),
        "i64": (11, struct.pack("<q", -(2**40)), -(2**40)),
        "f64": (12, struct.pack("<d", 0.1), 0.1),
        "bools": (9, struct.pack("<IQ??", 7, 2, True, False), [True, False]),
        "nested": (9, struct.pack("<IQIQiiIQ", 9, 2, 5, 2, 1, 2, 8, 0), [[1, 2], []]),
    }
    head = b"GGUF" + struct.pack("<IQQ", 3, 0, len(values))
    body = b"".join(string(key) + struct.pack("<I", kind) + raw for key, (kind, raw, _) in values.items())
    (tmp_path / "a.gguf").write_bytes(head + body)
    assert GgufFile(tmp_path / "a.gguf").metadata == {key: value for key, (_, _, value) in values.items()}


def refusal(path: Path) -> UsageError:
    with pytest.raises(UsageError) as refused:
        GgufFile(path)
    assert "\n" not in refused.value.message
    return refused.value


@pytest.mark.parametrize("num_kept", [4, 8, 20, 24, 60, 200, 5_000, -1, -100_000])
def test_a_truncated_file_is_said_to_be_broken(num_kept: int, path: Path) -> None:
    path.write_bytes(path.read_bytes()[:num_kept])
    assert f"{path} is broken" in refusal(path).message
    assert refusal(path).hint == "was it copied or downloaded in full?"


def test_no_length_of_a_garbled_file_is_believed(path: Path) -> None:
    whole = path.read_bytes()
    place = whole.index(b"tokenizer.ggml.tokens") + len(b"tokenizer.ggml.tokens") + 4 + 4
    path.write_bytes(whole[:place] + b"\xff" * 8 + whole[place + 8 :])
    assert "garbled" in refusal(path).message


@pytest.mark.parametrize("content", [b"", b"GG", b"\x80\x02}q\x00." * 20, b"{" * 100])
def test_another_kind_of_file(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(content)
    assert "is not a GGUF file" in refusal(tmp_path / "x.gguf").message


@pytest.mark.parametrize("version", [1, 4, 3 << 24])
def test_other_versions_and_byte_orders(version: int, path: Path) -> None:
    path.write_bytes(b"GGUF" + struct.pack("<I", version) + path.read_bytes()[8:])
    refused = refusal(path)
    assert isinstance(refused, UnsupportedModel)
    assert refused.field == "GGUF version"


def test_a_block_type_without_code_is_named(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "t.gguf", block_type="F16")
    whole = path.read_bytes()
    entry = whole.index(b"blk.1.ffn_up.weight") + len(b"blk.1.ffn_up.weight") + 4 + 16
    assert whole[entry : entry + 4] == struct.pack("<I", 1)
    path.write_bytes(whole[:entry] + struct.pack("<I", 11) + whole[entry + 4 :])
    refused = refusal(path)
    assert isinstance(refused, UnsupportedModel)
    assert (refused.field, refused.value) == ("block type of blk.1.ffn_up.weight", "Q3_K")
    assert "Q4_K" in refused.message
