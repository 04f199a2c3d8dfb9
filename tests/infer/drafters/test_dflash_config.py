from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from drafting_case import DRAFTER, HIDDEN_SIZE, TARGET_LAYERS, VOCAB_SIZE

from deepdraft.infer.checkpoint.config_json import model_config
from deepdraft.infer.config import ModelConfig
from deepdraft.infer.drafters.dflash_config import DflashConfig, default_target_layer_ids, dflash_config
from deepdraft.infer.errors import UnsupportedModel

TARGET = model_config(
    {
        "model_type": "llama",
        "vocab_size": VOCAB_SIZE,
        "hidden_size": HIDDEN_SIZE,
        "num_hidden_layers": TARGET_LAYERS,
        "num_attention_heads": 4,
    }
)
QWEN3_8B: dict[str, Any] = {
    "architectures": ["DFlashDraftModel"],
    "attention_bias": False,
    "block_size": 16,
    "dflash_config": {"mask_token_id": 151669, "target_layer_ids": [1, 9, 17, 25, 33]},
    "head_dim": 128,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "layer_types": ["full_attention"] * 5,
    "max_position_embeddings": 40960,
    "model_type": "qwen3",
    "num_attention_heads": 32,
    "num_hidden_layers": 5,
    "num_key_value_heads": 8,
    "num_target_layers": 36,
    "rms_norm_eps": 1e-6,
    "rope_scaling": None,
    "rope_theta": 1000000,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_sliding_window": False,
    "sliding_window": None,
    "vocab_size": 151936,
}


def config_of(target: ModelConfig = TARGET, **changes: Any) -> DflashConfig:
    """The usual drafter with these fields changed; None takes one away. A `dflash_config` joins the usual one."""
    nested = {**DRAFTER["dflash_config"], **changes.pop("dflash_config", {})}
    stated = {**DRAFTER, **changes, "dflash_config": {name: v for name, v in nested.items() if v is not None}}
    return dflash_config({name: value for name, value in stated.items() if value is not None}, target)


def test_a_drafter_as_published() -> None:
    target = dataclasses.replace(TARGET, vocab_size=151936, hidden_size=4096, num_layers=36)
    config = dflash_config(QWEN3_8B, target)
    assert (config.block_size, config.mask_token_id) == (16, 151669)
    assert config.target_layer_ids == (1, 9, 17, 25, 33)
    assert config.layers.num_layers == 5
    assert (config.attention.num_qo_heads, config.attention.num_kv_heads, config.attention.head_dim) == (32, 8, 128)
    assert config.attention.has_qk_norm
    assert config.layers.rope.theta == 1e6
    assert (config.is_causal, config.sliding_window, config.draft_window_size) == (False, None, None)
    assert (config.input_embedding_scale, config.output_multiplier, config.final_logit_softcapping) == (1, 1, None)


@pytest.mark.parametrize(
    ("num_target_layers", "num_draft_layers", "expected"),
    [
        (36, 5, (1, 9, 17, 25, 33)),  # z-lab/Qwen3-8B-DFlash-b16
        (64, 5, (1, 16, 31, 46, 61)),  # z-lab/Qwen3.5-27B-DFlash
        (61, 6, (1, 12, 24, 35, 47, 58)),  # z-lab/Kimi-K2.6-DFlash
        (36, 1, (18,)),
        (4, 2, (1, 1)),
    ],
)
def test_target_layers_by_default(num_target_layers: int, num_draft_layers: int, expected: tuple[int, ...]) -> None:
    assert default_target_layer_ids(num_target_layers, num_draft_layers) == expected


def test_target_layers_that_are_not_stated() -> None:
    assert config_of(dflash_config={"target_layer_ids": None}).target_layer_ids == (1, 2, 2)
    assert config_of(dflash_config={"target_layer_ids": None}, num_hidden_layers=1).target_layer_ids == (2,)


def test_fields_beside_dflash_config_and_in_it() -> None:
    assert config_of(block_size=None, dflash_config={"block_size": 4}).block_size == 4
    assert config_of(block_size=9, dflash_config={"block_size": 4}).block_size == 4
    assert config_of(block_size=None).block_size == 16
    assert config_of(dflash_config={"mask_token_id": None}, mask_token_id=0).mask_token_id == 0
    assert config_of(dflash_config={"draft_window_size": 512}).draft_window_size == 512


def test_windows_and_causality() -> None:
    """A drafter whose layers slide is causal unless it says otherwise: so its makers' code has it."""
    sliding = {"layer_types": ["sliding_attention"] * 3, "sliding_window": 2048}
    assert config_of(**sliding).sliding_window == 2048
    assert config_of(**sliding).is_causal
    assert not config_of(**sliding, is_causal=False).is_causal
    assert config_of(is_causal=True).is_causal
    assert config_of(layer_types=["full_attention"] * 3, sliding_window=2048).sliding_window is None
    by_flag = {"use_sliding_window": True, "sliding_window": 64}
    assert config_of(**by_flag).sliding_window is None  # Qwen3's layers slide from the 28th on
    assert config_of(**by_flag, max_window_layers=0).sliding_window == 64


def test_no_vocabulary_is_the_targets() -> None:
    assert config_of(vocab_size=None).layers.vocab_size == VOCAB_SIZE


REFUSED: dict[str, dict[str, Any]] = {
    "architectures": {"architectures": ["DFlash2DraftModel"]},
    "model_type": {"model_type": "laguna"},
    "dflash_config.conv_kernel_size": {"dflash_config": {"conv_kernel_size": 2}},
    "dflash_config.conv_group_size": {"dflash_config": {"conv_group_size": 16}},
    "dflash_config.selector_rank": {"dflash_config": {"selector_rank": 256}},
    "dflash_config.selector_top_k": {"dflash_config": {"selector_top_k": 16}},
    "dflash_config.projector_type": {"dflash_config": {"projector_type": "domino"}},
    "dflash_config.attention_sink_bias": {"dflash_config": {"attention_sink_bias": True}},
    "dflash_config.attention_value_scale": {"dflash_config": {"attention_value_scale": 0.5}},
    "dflash_config.use_swa": {"dflash_config": {"use_swa": True}},
    "dflash_config.sample_from_anchor": {"dflash_config": {"sample_from_anchor": True}},
    "dflash_config.use_aux_hidden_state": {"dflash_config": {"use_aux_hidden_state": False}},
    "hidden_size": {"hidden_size": 64},
    "vocab_size": {"vocab_size": VOCAB_SIZE + 1},
    "dflash_config.num_target_layers": {"num_target_layers": 6},
    "dflash_config.block_size": {"block_size": 1},
    "dflash_config.mask_token_id": {"dflash_config": {"mask_token_id": VOCAB_SIZE}},
    "dflash_config.target_layer_ids": {"dflash_config": {"target_layer_ids": [0, TARGET_LAYERS]}},
    "layer_types": {"layer_types": ["full_attention", "sliding_attention", "full_attention"], "sliding_window": 8},
    "sliding_window": {"layer_types": ["sliding_attention"] * 3},
    "hidden_act": {"hidden_act": "gelu"},
    "quantization_config": {"quantization_config": {"quant_method": "awq"}},
    "rope_scaling.rope_type": {"rope_scaling": {"rope_type": "longrope"}},
    "dflash_config.output_multiplier": {"dflash_config": {"output_multiplier": -1.0}},
    "dflash_config.draft_window_size": {"dflash_config": {"draft_window_size": 0}},
}


@pytest.mark.parametrize("field", REFUSED)
def test_refused_by_the_fields_name(field: str) -> None:
    with pytest.raises(UnsupportedModel) as refused:
        config_of(**REFUSED[field])
    assert refused.value.field == field
    assert "DFlashDraftModel" in str(refused.value.hint)


@pytest.mark.parametrize("stated", [[], [-1], [True, 5], ["1"], 3])
def test_target_layers_that_are_not_the_targets(stated: object) -> None:
    with pytest.raises(UnsupportedModel, match="target_layer_ids"):
        config_of(dflash_config={"target_layer_ids": stated})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"dflash_config": {"mask_token_id": None}}, "mask_token_id is missing"),
        ({"dflash_config": {"mask_token_id": -1}}, "mask_token_id is -1"),
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": ["other"] * 3}, "layer_types"),
    ],
)
def test_what_makes_no_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UnsupportedModel, match=message):
        config_of(**changes)


def test_a_dflash_config_that_is_no_object() -> None:
    with pytest.raises(UnsupportedModel, match="dflash_config is 'mask'"):
        dflash_config({**DRAFTER, "dflash_config": "mask"}, TARGET)


def test_a_target_too_small_for_the_default() -> None:
    small = dataclasses.replace(TARGET, num_layers=3)
    with pytest.raises(UnsupportedModel, match="too small for the default"):
        config_of(small, num_target_layers=3, dflash_config={"target_layer_ids": None})
