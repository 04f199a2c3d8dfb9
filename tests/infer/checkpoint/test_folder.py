from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.folder import FolderCheckpoint
from deepdraft.infer.errors import UnsupportedModel

CONFIG = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 16}
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
}
DEEPSEEK_SIZES = {
    **SIZES,
    "moe_intermediate_size": 16,
    "n_routed_experts": 8,
    "n_group": 2,
    "topk_group": 1,
    "num_experts_per_tok": 2,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "first_k_dense_replace": 1,
}


def saved(folder: Path, form: str, dtype: torch.dtype, sizes: dict[str, Any], **how: Any) -> dict[str, torch.Tensor]:
    """A tiny random model as transformers saves it; returns its weights."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = getattr(transformers, f"{form}Config")(**sizes)
    model = getattr(transformers, f"{form}ForCausalLM")(config).to(dtype)
    model.save_pretrained(folder, **how)
    return {name: tensor.detach() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("how", [{}, {"max_shard_size": "20KB"}], ids=["single", "sharded"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("form", ["Llama", "Qwen3"])
def test_weights_come_back_as_saved(form: str, dtype: torch.dtype, how: dict[str, str], tmp_path: Path) -> None:
    weights = saved(tmp_path, form, dtype, SIZES, **how)
    assert len(list(tmp_path.glob("*.safetensors"))) == 1 or how
    checkpoint = FolderCheckpoint(tmp_path)
    assert set(checkpoint.names()) == set(weights)
    assert checkpoint.num_bytes == sum(tensor.nbytes for tensor in weights.values())
    assert checkpoint.config.dtype == str(dtype).removeprefix("torch.")
    for name, expected in weights.items():
        assert torch.equal(checkpoint.tensor(name), expected)
        assert checkpoint.tensor(name).dtype == dtype
        assert torch.equal(checkpoint.tensor(name, torch.float32), expected.float())
    assert checkpoint.unread_names() == ()
    assert checkpoint.notes == ()


@pytest.mark.parametrize("how", [{}, {"max_shard_size": "20KB"}], ids=["single", "sharded"])
def test_experts_have_names_of_their_own(how: dict[str, str], tmp_path: Path) -> None:
    weights = saved(tmp_path, "DeepseekV3", torch.float32, DEEPSEEK_SIZES, **how)
    checkpoint = FolderCheckpoint(tmp_path)
    both = set(weights) & set(checkpoint.names())
    assert all(torch.equal(checkpoint.tensor(name), weights[name]) for name in both)
    apart = set(checkpoint.names()) - both
    assert apart == {
        f"model.layers.1.mlp.experts.{expert}.{part}_proj.weight"
        for expert in range(8)
        for part in ("gate", "up", "down")
    }
    gate_up = weights["model.layers.1.mlp.experts.gate_up_proj"][3]
    parts = [checkpoint.tensor(f"model.layers.1.mlp.experts.3.{part}_proj.weight") for part in ("gate", "up")]
    assert torch.equal(torch.cat(parts), gate_up)


def test_tied_embeddings_are_stored_once(tmp_path: Path) -> None:
    saved(tmp_path, "Llama", torch.float32, {**SIZES, "tie_word_embeddings": True})
    checkpoint = FolderCheckpoint(tmp_path)
    assert checkpoint.config.has_tied_embeddings
    assert "lm_head.weight" not in checkpoint.names()


def write(folder: Path, tensors: dict[str, torch.Tensor], config: dict[str, Any] | None = None) -> Path:
    (folder / "config.json").write_text(json.dumps(config or CONFIG))
    save_file(tensors, folder / "model.safetensors")
    return folder


def test_a_kimi_wrapper_and_layers_for_multi_token_prediction(tmp_path: Path) -> None:
    config = {"model_type": "kimi_k25", "text_config": {"model_type": "kimi_k2", **DEEPSEEK_SIZES}}
    names = {
        "language_model.model.embed_tokens.weight": "model.embed_tokens.weight",
        "language_model.model.layers.1.self_attn.o_proj.weight": "model.layers.1.self_attn.o_proj.weight",
        "language_model.lm_head.weight": "lm_head.weight",
        "model.language_model.norm.weight": "model.norm.weight",
    }
    aside = [
        "vision_tower.encoder.blocks.0.wqkv.weight",
        "mm_projector.proj.0.weight",
        "language_model.model.layers.2.eh_proj.weight",
    ]
    tensors = {name: torch.full((2, 2), float(rank)) for rank, name in enumerate([*names, *aside])}
    checkpoint = FolderCheckpoint(write(tmp_path, tensors, config))
    assert set(checkpoint.names()) == set(names.values())
    for stored, name in names.items():
        assert torch.equal(checkpoint.tensor(name), tensors[stored])
    assert checkpoint.notes == (
        "text only: 2 tensors of the vision part are not loaded",
        "num_nextn_predict_layers: 1 tensors for multi-token prediction are not loaded",
    )
    assert checkpoint.num_bytes == 4 * 16


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    checkpoint = FolderCheckpoint(write(tmp_path, {"model.norm.weight": torch.ones(8)}))
    with pytest.raises(UsageError, match=r"has no tensor model\.embed_tokens\.weight"):
        checkpoint.tensor("model.embed_tokens.weight")


def test_leftovers_are_reported(tmp_path: Path) -> None:
    tensors = {"model.norm.weight": torch.ones(8), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(2)}
    checkpoint = FolderCheckpoint(write(tmp_path, tensors))
    checkpoint.tensor("model.norm.weight")
    assert checkpoint.unread_names() == ("model.layers.0.self_attn.rotary_emb.inv_freq",)


def test_the_weights_say_their_dtype_whatever_the_config_says(tmp_path: Path) -> None:
    config = {**CONFIG, "torch_dtype": "float16"}
    tensors = {"model.embed_tokens.weight": torch.ones(16, 8, dtype=torch.bfloat16)}
    assert FolderCheckpoint(write(tmp_path, tensors, config)).config.dtype == "bfloat16"


def test_another_dtype_is_refused_by_tensor(tmp_path: Path) -> None:
    tensors = {"model.embed_tokens.weight": torch.ones(16, 8).to(torch.float8_e4m3fn)}
    with pytest.raises(UnsupportedModel, match=r"dtype of model\.embed_tokens\.weight is 'F8_E4M3'"):
        FolderCheckpoint(write(tmp_path, tensors))


def test_named_after_its_folder(tmp_path: Path) -> None:
    (tmp_path / "My-Model").mkdir()
    folder = write(tmp_path / "My-Model", {"model.norm.weight": torch.ones(8)})
    assert FolderCheckpoint(folder).name == FolderCheckpoint(folder / ".").name == "My-Model"


def test_named_after_the_hubs_name_in_its_cache(tmp_path: Path) -> None:
    folder = tmp_path / "models--some-owner--Some-Model-7B" / "snapshots" / "0123abc"
    folder.mkdir(parents=True)
    assert FolderCheckpoint(write(folder, {"model.norm.weight": torch.ones(8)})).name == "some-owner/Some-Model-7B"


def sharded(folder: Path) -> Path:
    """Two shards and their index."""
    write(folder, {})
    (folder / "model.safetensors").unlink()
    for shard, name in (("a.safetensors", "model.norm.weight"), ("b.safetensors", "lm_head.weight")):
        save_file({name: torch.ones(8)}, folder / shard)
    index = {"weight_map": {"model.norm.weight": "a.safetensors", "lm_head.weight": "b.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def refusal(folder: Path) -> UsageError:
    with pytest.raises(UsageError) as refused:
        FolderCheckpoint(folder)
    assert "\n" not in refused.value.message
    return refused.value


def test_a_missing_shard_is_named(tmp_path: Path) -> None:
    (sharded(tmp_path) / "b.safetensors").unlink()
    assert "1 of 2 weight files" in refusal(tmp_path).message
    assert refusal(tmp_path).message.endswith("are missing: b.safetensors")


@pytest.mark.parametrize("kept", [0, 4, 20, -4])
def test_a_truncated_file_is_named(kept: int, tmp_path: Path) -> None:
    path = sharded(tmp_path) / "b.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    assert f"{path} is broken" in refusal(tmp_path).message


@pytest.mark.parametrize(
    ("index", "words"),
    [
        ("{", "index.json is not JSON"),
        ("{}", "has no weight_map"),
        ('{"weight_map": {}}', "has no weight_map"),
        ('{"weight_map": {"a": 1}}', "has no weight_map"),
        ('{"weight_map": {"a": "../a.safetensors"}}', "outside its folder"),
        ('{"weight_map": {"extra": "a.safetensors"}}', "extra"),
    ],
)
def test_a_broken_index_is_said(index: str, words: str, tmp_path: Path) -> None:
    (sharded(tmp_path) / "model.safetensors.index.json").write_text(index)
    assert words in refusal(tmp_path).message


def test_no_weights_at_all(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    assert "model.safetensors is missing" in refusal(tmp_path).message
    (tmp_path / "pytorch_model.bin").touch()
    assert ".bin" in (refusal(tmp_path).hint or "")
    (tmp_path / "model-00001-of-00002.safetensors").touch()
    assert "which says what the others hold" in refusal(tmp_path).message


def test_the_files_are_not_changed(tmp_path: Path) -> None:
    folder = write(tmp_path, {"model.norm.weight": torch.ones(8)})
    FolderCheckpoint(folder).tensor("model.norm.weight").zero_()
    assert torch.equal(load_file(folder / "model.safetensors")["model.norm.weight"], torch.ones(8))
