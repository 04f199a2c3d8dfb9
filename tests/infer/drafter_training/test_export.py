"""The folder: names and fields as published, and back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.draft_module import initialised
from deepdraft.infer.drafter_training.export import drafter_config, read_drafter, shape_of_config, write_drafter
from deepdraft.infer.drafter_training.shape import DrafterShape

PER_LAYER = {
    *(f"self_attn.{name}.weight" for name in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")),
    *(f"mlp.{name}.weight" for name in ("gate_proj", "up_proj", "down_proj")),
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
}


def test_weights_have_the_published_names(shape: DrafterShape, tmp_path: Path) -> None:
    write_drafter(initialised(shape, 1), tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    expected = {f"layers.{layer}.{name}" for layer in range(shape.num_layers) for name in PER_LAYER}
    assert set(weights) == expected | {"fc.weight", "hidden_norm.weight", "norm.weight"}
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    assert weights["fc.weight"].shape == (32, 64)


def test_the_config_says_the_shape(shape: DrafterShape) -> None:
    config = json.loads(json.dumps(drafter_config(shape)))
    assert shape_of_config(config) == shape
    assert config["architectures"] == ["DFlashDraftModel"]
    assert config["dflash_config"] == {"mask_token_id": 260, "target_layer_ids": [0, 1], "draft_window_size": 16}


def test_reading_gives_the_module_rounded_to_bfloat16(shape: DrafterShape, tmp_path: Path) -> None:
    module = initialised(shape, 1)
    write_drafter(module, tmp_path)
    again = read_drafter(tmp_path)
    assert again.shape == shape
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor.bfloat16().float(), again.state_dict()[name])


def test_what_is_no_drafter_is_refused(shape: DrafterShape, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no drafter in"):
        read_drafter(tmp_path)
    write_drafter(initialised(shape, 1), tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 5}))
    with pytest.raises(UsageError, match="don't fit their config"):
        read_drafter(tmp_path)
    del config["dflash_config"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UsageError, match="dflash_config"):
        read_drafter(tmp_path)
