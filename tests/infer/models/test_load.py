"""From files to a model: dtypes, memory, and what is wrong with files named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.errors import UnsupportedModel
from deepdraft.infer.kernels.expanded import EXPANSION_PRICES, fewest_expanded_queries
from deepdraft.infer.models.decoder import Decoder
from deepdraft.infer.models.load import load_model


def changed(folder: Path, tmp_path: Path, change: Any) -> Path:
    """A copy of the folder with its tensors changed."""
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    tensors = load_file(copy / "model.safetensors")
    change(tensors)
    save_file(tensors, copy / "model.safetensors")
    return copy


def weights_of(part: Any) -> list[Tensor]:
    """All tensors of a model, found by walking its parts."""
    if isinstance(part, Tensor):
        return [part]
    if isinstance(part, tuple):
        return [tensor for each in part for tensor in weights_of(each)]
    names = getattr(type(part), "__slots__", ()) if type(part).__module__.startswith("deepdraft.infer") else ()
    return [tensor for name in names for tensor in weights_of(getattr(part, name))]


def test_every_weight_of_the_files_is_in_the_model(pair_of: Any) -> None:
    for form in ("deepseek_v3", "llama", "qwen3"):
        pair = pair_of(form)
        num_stored = sum(tensor.numel() for tensor in load_file(pair.folder / "model.safetensors").values())
        model = pair.load(torch.float32)
        repeated = 0
        if form == "qwen3":  # query and key norm stand once for each head
            repeated = model.config.num_layers * (6 + 2 - 2) * 8
        floors = sum(tensor.numel() for tensor in weights_of(model) if tensor.dim() == 0)
        frequencies = model.rotary.inverse_frequencies.numel()
        in_model = sum(tensor.numel() for tensor in weights_of(model))
        assert in_model - floors - frequencies - repeated == num_stored


def test_on_a_cpu_weights_are_float32_whatever_is_stored(pair_of: Any, tmp_path: Path) -> None:
    pair = pair_of("deepseek_v3")

    def halve(tensors: dict[str, Tensor]) -> None:
        tensors.update({name: tensor.bfloat16() for name, tensor in tensors.items()})

    model = load_model(open_checkpoint(changed(pair.folder, tmp_path, halve)))
    assert isinstance(model, Decoder)
    assert model.embedding.dtype == torch.float32
    assert torch.equal(model.embedding, pair.ours.embedding.bfloat16().float())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_keeps_norms_and_router_in_float32(dtype: torch.dtype, pair_of: Any) -> None:
    model = pair_of("deepseek_v3").load(dtype)
    layer = model.layers[1]
    assert layer.attention.down.dtype == layer.feed_forward.experts[0].down.dtype == dtype
    assert layer.attention_norm.scaled_weight.dtype == torch.float32
    assert layer.feed_forward.router.weight.dtype == torch.float32
    assert layer.feed_forward.router.selection_bias.dtype == torch.float32


def test_a_tied_output_is_the_embedding_itself(pair_of: Any) -> None:
    assert (
        pair_of("llama", tie_word_embeddings=True).ours.output
        is pair_of("llama", tie_word_embeddings=True).ours.embedding
    )
    assert pair_of("llama").ours.output is not pair_of("llama").ours.embedding


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ("llama", "model.layers.1.self_attn.k_proj.weight"),
        ("llama", "model.embed_tokens.weight"),
        ("llama", "lm_head.weight"),
        ("qwen3", "model.layers.2.self_attn.q_norm.weight"),
        ("deepseek_v3", "model.layers.0.mlp.up_proj.weight"),
        ("deepseek_v3", "model.layers.1.mlp.experts.7.down_proj.weight"),
        ("deepseek_v3", "model.layers.1.mlp.gate.e_score_correction_bias"),
        ("deepseek_v3", "model.layers.2.self_attn.kv_a_proj_with_mqa.weight"),
    ],
)
def test_a_missing_or_misshapen_tensor_is_named(form: str, name: str, pair_of: Any, tmp_path: Path) -> None:
    folder = pair_of(form).folder

    def drop(tensors: dict[str, Tensor]) -> None:
        del tensors[name]

    def widen(tensors: dict[str, Tensor]) -> None:
        tensors[name] = torch.cat((tensors[name], tensors[name]))

    with pytest.raises(UsageError, match=name.replace(".", r"\.")):
        load_model(open_checkpoint(changed(folder, tmp_path / "drop", drop)))
    with pytest.raises(UsageError, match=name.replace(".", r"\.") + r" is \[\d+.*config asks for \["):
        load_model(open_checkpoint(changed(folder, tmp_path / "widen", widen)))


@pytest.mark.parametrize("field", ["q_lora_rank", "kv_lora_rank", "qk_nope_head_dim"])
def test_an_odd_width_is_refused_by_its_field(field: str, pair_of: Any, tmp_path: Path) -> None:
    folder = changed(pair_of("deepseek_v3").folder, tmp_path, lambda tensors: None)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, field: 21}))
    with pytest.raises(UnsupportedModel, match=f"{field} is 21"):
        load_model(open_checkpoint(folder))


def test_a_tensor_without_a_place_is_named(pair_of: Any, tmp_path: Path) -> None:
    """A bias that the config doesn't tell of would be left out, and the output be wrong without a word."""

    def add_bias(tensors: dict[str, Tensor]) -> None:
        tensors["model.layers.0.self_attn.q_proj.bias"] = torch.ones(48)

    with pytest.raises(UsageError, match=r"model\.layers\.0\.self_attn\.q_proj\.bias"):
        load_model(open_checkpoint(changed(pair_of("llama").folder, tmp_path, add_bias)))


def test_tensors_that_say_nothing_new_are_left_aside(pair_of: Any, tmp_path: Path) -> None:
    pair = pair_of("llama", tie_word_embeddings=True)

    def add(tensors: dict[str, Tensor]) -> None:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
        tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(4)

    model = load_model(open_checkpoint(changed(pair.folder, tmp_path, add)))
    assert isinstance(model, Decoder)
    assert torch.equal(model.output, pair.ours.output)


def test_a_model_nested_in_kimis_wrapper(pair_of: Any, tmp_path: Path, run_of: Any) -> None:
    """Kimi K2.5 and later: text_config, and the language model's weights under a prefix."""
    pair = pair_of("deepseek_v3")

    def nest(tensors: dict[str, Tensor]) -> None:
        for name in list(tensors):
            tensors[f"language_model.{name}"] = tensors.pop(name)

    folder = changed(pair.folder, tmp_path, nest)
    text_config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "kimi_k25", "text_config": text_config}))
    model = load_model(open_checkpoint(folder))
    assert torch.equal(run_of(model).logits("a", [5, 6, 7]), run_of(pair.ours).logits("a", [5, 6, 7]))


def test_when_latent_rows_are_expanded_is_the_back_end_s_matter(pair_of: Any) -> None:
    pair = pair_of("deepseek_v3")
    shape = pair.ours.config.attention
    dims = {"latent_dim": shape.kv_lora_rank, "plain_dim": shape.qk_nope_head_dim, "value_dim": shape.v_head_dim}
    for name in ("torch", "native"):
        model = load_model(open_checkpoint(pair.folder), attention=name)
        assert isinstance(model, Decoder)
        assert model.many_queries == fewest_expanded_queries(**dims, price=EXPANSION_PRICES[name])
    with pytest.raises(UsageError, match="no attention back end is called 'fast'"):
        load_model(open_checkpoint(pair.folder), attention="fast")
