"""The exported folder is what transformers and readers of published DeepSeek-V3 checkpoints expect."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from training.embedded.export import NotLoadable, check_folder, final_model, float_copy, write_folder
from training.embedded.model import training_model
from training.embedded.recipe import rope_parameters
from training.embedded.vocabulary import train_vocabulary
from transformers import AutoModelForCausalLM, AutoTokenizer

TINY: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with random weights, exported."""
    weights = training_model(0, **TINY).state_dict()
    weights["model.layers.1.mlp.gate.e_score_correction_bias"] = torch.tensor([0.1, 0.1001, -0.2, 0.3])
    made = tmp_path_factory.mktemp("exported")
    write_folder(final_model(weights, **TINY), train_vocabulary(["def f(x):\n    return x\n"], 300), made)
    return made


def test_weights_have_the_published_names_and_types(folder: Path) -> None:
    with safe_open(folder / "model.safetensors", "pt") as file:
        types = {name: file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118 (not a dict)
    prefix = "model.layers.1.mlp"
    for expert in range(4):
        for projection in ("gate_proj", "up_proj", "down_proj"):
            assert f"{prefix}.experts.{expert}.{projection}.weight" in types
    assert types.pop(f"{prefix}.gate.e_score_correction_bias") == torch.float32
    assert set(types.values()) == {torch.bfloat16}
    assert "lm_head.weight" not in types


def test_the_bias_is_not_rounded(folder: Path) -> None:
    with safe_open(folder / "model.safetensors", "pt") as file:
        bias = file.get_tensor("model.layers.1.mlp.gate.e_score_correction_bias")
    assert bias.tolist() == pytest.approx([0.1, 0.1001, -0.2, 0.3])


def test_positions_are_read_back(folder: Path) -> None:
    config = AutoModelForCausalLM.from_pretrained(folder).config
    assert rope_parameters(is_yarn=True).items() <= config.rope_parameters.items()
    assert config.max_position_embeddings == 262_144
    written = json.loads((folder / "config.json").read_text())
    assert written["rope_scaling"]["type"] == "yarn"
    assert written["topk_method"] == "noaux_tc"


def test_logits_and_text_are_read_back(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).train(False)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    check_folder(final_model(weights, **TINY), folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.decode(tokenizer.encode("def é():\n\tpass")) == "def é():\n\tpass"
    assert tokenizer.eos_token == "<|end|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_other_weights_are_noticed(folder: Path) -> None:
    other = final_model(training_model(1, **TINY).state_dict(), **TINY)
    with pytest.raises(NotLoadable, match="logits differ"):
        check_folder(other, folder)


def test_float_copy_has_the_rounded_weights() -> None:
    rounded = final_model(training_model(0, **TINY).state_dict(), **TINY)
    for name, value in float_copy(rounded).state_dict().items():
        assert value.dtype == torch.float32
        assert torch.equal(value, rounded.state_dict()[name].float()), name
