from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from gguf_writing import weights, write_gguf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.gguf import GgufFile
from deepdraft.infer.checkpoint.gguf_checkpoint import GgufCheckpoint

STATED = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0, "tokenizer.ggml.bos_token_id": 1}


def test_weights_come_back_by_hugging_faces_names_and_layouts(tmp_path: Path) -> None:
    expected = weights(has_output=True)
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "Some-Model.Q8_0.gguf", tensors=expected))
    assert checkpoint.name == "Some-Model.Q8_0"
    assert set(checkpoint.names()) == set(expected)
    assert checkpoint.num_bytes == sum(array.nbytes for array in expected.values())
    for name, array in expected.items():
        assert torch.equal(checkpoint.tensor(name), torch.from_numpy(array))
    assert (checkpoint.unread_names(), checkpoint.notes) == ((), ())


def test_biases_of_queries_and_keys_turn_with_their_rows(tmp_path: Path) -> None:
    expected = weights()
    # Stored as convert_hf_to_gguf.py would: the same permutation as the matrix's rows.
    bias = np.arange(256, dtype=np.float32)
    stored = bias.reshape(4, 2, 32).swapaxes(1, 2).reshape(-1)
    tensors = expected | {"blk.0.attn_q.bias": stored, "blk.0.attn_v.bias": np.arange(128, dtype=np.float32)}
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "b.gguf", tensors=tensors))
    assert torch.equal(checkpoint.tensor("model.layers.0.self_attn.q_proj.bias"), torch.from_numpy(bias))
    assert torch.equal(checkpoint.tensor("model.layers.0.self_attn.v_proj.bias"), torch.arange(128.0))
    assert getattr(checkpoint.config.attention, "has_bias", None) is True


@pytest.mark.parametrize("block_type", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "F16", "BF16"])
def test_quantized_rows_are_turned_after_they_are_read(block_type: str, tmp_path: Path) -> None:
    expected = weights()
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "q.gguf", tensors=expected, block_type=block_type))
    for name, array in expected.items():
        found = checkpoint.tensor(name, torch.float32)
        assert found.dtype == torch.float32
        assert (found - torch.from_numpy(array)).abs().max() < 0.6


def test_another_dtype_on_request(tmp_path: Path) -> None:
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "t.gguf"))
    assert checkpoint.tensor("model.norm.weight", torch.bfloat16).dtype == torch.bfloat16


def test_tensors_are_their_owners_to_change(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "t.gguf")
    before = path.read_bytes()
    GgufCheckpoint(path).tensor("model.norm.weight").zero_()
    assert path.read_bytes() == before


def test_missing_and_left_over_tensors_by_name(tmp_path: Path) -> None:
    tensors = weights() | {"blk.0.attn_sinks.weight": np.ones(4, np.float32)}
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "t.gguf", tensors=tensors))
    with pytest.raises(UsageError, match=r"has no tensor lm_head\.weight"):
        checkpoint.tensor("lm_head.weight")
    for name in weights():
        checkpoint.tensor(name)
    assert checkpoint.unread_names() == ("blk.0.attn_sinks.weight",)


def test_rows_that_are_no_whole_heads(tmp_path: Path) -> None:
    tensors = weights() | {"blk.0.attn_q.bias": np.ones(100, np.float32)}
    checkpoint = GgufCheckpoint(write_gguf(tmp_path / "t.gguf", tensors=tensors))
    with pytest.raises(UsageError, match="100 rows, not whole heads of 64"):
        checkpoint.tensor("model.layers.0.self_attn.q_proj.bias")


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.integers(0, 2**16), st.integers(0, 255)), min_size=1, max_size=4))
def test_garbled_metadata_is_refused_or_read(changes: list[tuple[int, int]], tmp_path: Path) -> None:
    """Whatever bytes the file's head holds, what comes is a clear refusal: never another error."""
    whole = tmp_path / "whole.gguf"
    content = bytearray((whole if whole.exists() else write_gguf(whole, stated=STATED)).read_bytes())
    end_of_head = content.index(b"output_norm.weight") + 48
    for place, byte in changes:
        content[place % end_of_head] = byte
    path = tmp_path / "garbled.gguf"
    path.write_bytes(content)
    try:
        checkpoint = GgufCheckpoint(path)
        checkpoint.tokenizer().encode("ab", add_special=True)
    except UsageError as refused:
        assert "\n" not in refused.message


def test_smollm2_has_transformers_weights(smollm2_path: Path) -> None:
    """The rows' order held against transformers' own loader of GGUF files, on the real model's first layer."""
    gguf = pytest.importorskip("gguf", reason="the package gguf is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    from transformers.modeling_gguf_pytorch_utils import LlamaTensorProcessor

    checkpoint = GgufCheckpoint(smollm2_path)
    processor = LlamaTensorProcessor(config={"num_attention_heads": 9, "num_key_value_heads": 3})
    tensors = GgufFile(smollm2_path).tensors
    raw = np.memmap(smollm2_path, dtype=np.uint8, mode="r")
    for part, name in {"attn_q": "q_proj", "attn_k": "k_proj", "attn_v": "v_proj", "attn_output": "o_proj"}.items():
        stored = tensors[f"blk.0.{part}.weight"]
        rows = raw[stored.start : stored.start + stored.num_bytes].reshape(stored.shape[0], -1)
        array = gguf.dequantize(rows, gguf.GGMLQuantizationType[stored.block_type])
        expected = processor.process(array, stored.name).weights
        np.testing.assert_array_equal(checkpoint.tensor(f"model.layers.0.self_attn.{name}.weight").numpy(), expected)
