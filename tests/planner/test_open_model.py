import json

import pytest
from tests.planner.checkpoint import SHARDS, TINY_LATENT, write_checkpoint

from deepdraft.errors import UsageError
from deepdraft.planner.open_model import open_model


def test_a_checkpoints_folder_and_its_config_alike(tmp_path):
    folder = write_checkpoint(tmp_path / "tiny", SHARDS)
    model = open_model(str(folder))
    assert model == open_model(str(folder / "config.json"))
    assert model.shape.name == "tiny" and model.weights.is_exact and model.weights.total_bytes == 7000


def test_a_config_alone_is_estimated_or_told(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY_LATENT))
    assert not open_model(str(path)).weights.is_exact
    assert open_model(str(path), weight_bytes=12_345_678).weights.total_bytes == 12_345_678
    assert open_model("kimi-k2.6", weight_bytes=10**12).weights.total_bytes == 10**12


def test_the_quantised_cache_of_a_modelopt_checkpoint(tmp_path):
    """ModelOpt writes it beside the config."""
    folder = write_checkpoint(tmp_path, SHARDS)
    assert open_model(str(folder)).shape.kv_cache_dtype is None
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"kv_cache_quant_algo": "FP8"}}))
    assert open_model(str(folder)).shape.kv_cache_dtype == "fp8"


def test_drafters(tmp_path):
    target = write_checkpoint(tmp_path / "target", SHARDS)
    eagle = write_checkpoint(
        tmp_path / "eagle",
        [{"layers.0.mlp.up_proj.weight": 90}],
        {"architectures": ["LlamaForCausalLMEagle3"], "hidden_size": 64, "num_hidden_layers": 1,
         "num_attention_heads": 4},
    )  # fmt: skip
    drafter = open_model(str(target), drafter=str(eagle)).drafter
    assert drafter is not None and (drafter.kind, drafter.num_taps, drafter.weights.total_bytes) == ("eagle3", 3, 90)
    own = open_model(str(target), drafter="mtp").drafter
    assert own is not None and (own.kind, own.shape.num_layers, own.weights.total_bytes) == ("mtp", 1, 1700)
    reference = open_model("kimi-k2.6", drafter="kimi-k2.6-dflash").drafter
    assert reference is not None and reference.kind == "dflash"


def test_what_names_nothing(tmp_path):
    with pytest.raises(UsageError) as refused:
        open_model("no-such-model")
    assert "kimi-k2.6" in (refused.value.hint or "")
    with pytest.raises(UsageError, match="can't read"):
        open_model(str(tmp_path))
    with pytest.raises(UsageError, match="prediction"):
        open_model("qwen3-8b", drafter="mtp")
    with pytest.raises(UsageError, match="no shape I know"):
        open_model("kimi-k2.6", drafter="no-such-drafter")
