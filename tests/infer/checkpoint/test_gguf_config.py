from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_writing import (
    HEAD_DIM,
    HIDDEN,
    MLP,
    NUM_KV_HEADS,
    NUM_LAYERS,
    NUM_QO_HEADS,
    VOCAB_SIZE,
    weights,
    write_gguf,
)

from deepdraft.infer.checkpoint.gguf import GgufFile
from deepdraft.infer.checkpoint.gguf_config import gguf_config
from deepdraft.infer.config import GqaShape, ModelConfig, RopeShape
from deepdraft.infer.errors import UnsupportedModel


def config(tmp_path: Path, stated: dict[str, Any] | None = None, **how: Any) -> ModelConfig:
    return gguf_config(GgufFile(write_gguf(tmp_path / "tiny.gguf", stated=stated, **how)))


def test_the_shape(tmp_path: Path) -> None:
    stated = {
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.eot_token_id": 3,
        "tokenizer.ggml.eom_token_id": 2,
    }
    assert config(tmp_path, stated) == ModelConfig(
        model_type="llama",
        vocab_size=VOCAB_SIZE,
        hidden_size=HIDDEN,
        intermediate_size=MLP,
        num_layers=NUM_LAYERS,
        rms_norm_eps=float(np.float32(1e-5)),
        attention=GqaShape(
            num_qo_heads=NUM_QO_HEADS, num_kv_heads=NUM_KV_HEADS, head_dim=HEAD_DIM, has_qk_norm=False, has_bias=False
        ),
        moe=None,
        rope=RopeShape(theta=10_000.0),
        max_context_len=512,
        has_tied_embeddings=True,
        dtype="float32",
        eos_token_ids=(2, 3),
        bos_token_id=1,
    )


def test_an_output_matrix_of_its_own(tmp_path: Path) -> None:
    assert not config(tmp_path, tensors=weights(has_output=True)).has_tied_embeddings


@pytest.mark.parametrize(("block_type", "dtype"), [("F16", "float16"), ("BF16", "bfloat16"), ("Q4_1", "Q4_1")])
def test_what_most_weights_are_stored_as(block_type: str, dtype: str, tmp_path: Path) -> None:
    assert config(tmp_path, block_type=block_type).dtype == dtype


def test_the_same_number_for_each_layer(tmp_path: Path) -> None:
    stated = {"llama.attention.head_count_kv": [2, 2], "llama.feed_forward_length": [MLP, MLP]}
    assert config(tmp_path, stated) == config(tmp_path)


SCALING = "llama.rope.scaling"


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ({"llama.rope.freq_base": None}, RopeShape(theta=10_000.0)),
        ({f"{SCALING}.type": "none"}, RopeShape(theta=10_000.0)),
        (
            {f"{SCALING}.type": "linear", f"{SCALING}.factor": 4.0},
            RopeShape(theta=10_000.0, kind="linear", factor=4.0),
        ),
        ({"llama.rope.scale_linear": 2.0}, RopeShape(theta=10_000.0, kind="linear", factor=2.0)),
        (
            {f"{SCALING}.type": "yarn", f"{SCALING}.factor": 4.0, f"{SCALING}.original_context_length": 128},
            RopeShape(
                theta=10_000.0,
                kind="yarn",
                factor=4.0,
                original_max_position_embeddings=128,
                beta_fast=32.0,
                beta_slow=1.0,
            ),
        ),
        (
            {
                f"{SCALING}.type": "yarn",
                f"{SCALING}.factor": 4.0,
                f"{SCALING}.original_context_length": 128,
                f"{SCALING}.attn_factor": 0.5,
            },
            RopeShape(
                theta=10_000.0,
                kind="yarn",
                factor=4.0,
                original_max_position_embeddings=128,
                beta_fast=32.0,
                beta_slow=1.0,
                attention_factor=0.5 * (0.1 * math.log(4.0) + 1.0),
            ),
        ),
    ],
)
def test_rotary_scaling(stated: dict[str, Any], expected: RopeShape, tmp_path: Path) -> None:
    assert config(tmp_path, stated).rope == expected


def llama3_divisors(factor: float, *, low: float = 1.0, high: float = 4.0) -> np.ndarray:
    """convert_hf_to_gguf.py's rope_freqs.weight."""
    divisors = []
    for frequency in 1.0 / (10_000.0 ** (np.arange(0, HEAD_DIM, 2) / HEAD_DIM)):
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / high:
            divisors.append(1.0)
        elif wavelength > 8192 / low:
            divisors.append(factor)
        else:
            smooth = (8192 / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, dtype=np.float32)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_llama3_scaling_is_found_in_its_divisors(factor: float, tmp_path: Path) -> None:
    tensors = weights() | {"rope_freqs.weight": llama3_divisors(factor)}
    assert config(tmp_path, tensors=tensors).rope == RopeShape(
        theta=10_000.0,
        kind="llama3",
        factor=factor,
        original_max_position_embeddings=8192,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
    )


@pytest.mark.parametrize("divisors", [llama3_divisors(8.0, high=2.0), np.ones(7, np.float32)], ids=["other", "short"])
def test_other_divisors_are_refused(divisors: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel) as refused:
        config(tmp_path, tensors=weights() | {"rope_freqs.weight": divisors})
    assert refused.value.field == "rope_freqs.weight"


@pytest.mark.parametrize(
    ("stated", "field"),
    [
        ({"llama.expert_count": 8}, "llama.expert_count"),
        ({"llama.attention.sliding_window": 4096}, "llama.attention.sliding_window"),
        ({"llama.attention.scale": 0.5}, "llama.attention.scale"),
        ({"llama.logit_scale": 0.5}, "llama.logit_scale"),
        ({"llama.attention.head_count_kv": [2, 1]}, "llama.attention.head_count_kv"),
        ({"llama.attention.head_count_kv": 3}, "llama.attention.head_count_kv"),
        ({"llama.attention.value_length": 32}, "llama.attention.value_length"),
        ({"llama.rope.dimension_count": 32}, "llama.rope.dimension_count"),
        ({"llama.block_count": None}, "llama.block_count"),
        ({"llama.rope.scaling.type": "longrope"}, "llama.rope.scaling.type"),
        ({"llama.rope.scaling.type": "yarn"}, "llama.rope.scaling.factor"),
        ({"split.count": 3}, "split.count"),
    ],
)
def test_refused_by_key(stated: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel) as refused:
        config(tmp_path, stated)
    assert refused.value.field == field


def test_another_architecture_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"general\.architecture is 'qwen2': GGUF files of the llama form"):
        config(tmp_path, architecture="qwen2")


def test_a_file_without_a_language_model(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"token_embd\.weight is missing"):
        config(tmp_path, tensors={"model.norm.weight": np.ones(HIDDEN, np.float32)})
