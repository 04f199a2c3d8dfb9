"""Flags become a model, a pool and a name; what can't be served is refused before anything is listened on."""

from __future__ import annotations

import json
import shutil

import pytest

from deepdraft.errors import UsageError
from deepdraft.infer.errors import UnsupportedModel
from deepdraft.infer.server.load import load_service
from deepdraft.infer.server.settings import ServeSettings


def settings(folder, **values) -> ServeSettings:
    return ServeSettings(**{"model": str(folder), "num_threads": 1, **values})


def test_defaults_follow_the_model(random_folder) -> None:
    facts = load_service(settings(random_folder)).facts
    assert facts.model_names == (random_folder.name,)
    assert facts.max_context_len == 512
    assert facts.kv_pool_tokens == 4 * 512
    assert facts.settings["page_size"] == 16
    assert facts.settings["kv_pool_bytes"] == facts.settings["predicted_kv_pool_bytes"]


def test_a_pool_by_its_share_of_free_memory(random_folder) -> None:
    one = load_service(settings(random_folder, mem_fraction=0.001)).facts.settings
    two = load_service(settings(random_folder, mem_fraction=0.002)).facts.settings
    assert 1.5 < two["kv_pool_bytes"] / one["kv_pool_bytes"] < 2.5  # what is free changes meanwhile


def test_another_dtype(random_folder) -> None:
    facts = load_service(settings(random_folder, dtype="bfloat16", kv_pool_tokens=64)).facts.settings
    assert (facts["dtype"], facts["kv_dtype"]) == ("bfloat16", "bfloat16")
    assert facts["kv_bytes_per_token"] == 2 * 2 * 2 * 8 * 2


def test_latent_attention(tiny_deepseek) -> None:
    facts = load_service(settings(tiny_deepseek.folder, kv_pool_tokens=64)).facts.settings
    assert facts["model_type"] == "deepseek_v3"
    assert facts["kv_bytes_per_token"] == 2 * (16 + 4) * 4  # layers, rank and rotary part, bytes


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"max_context_len": 513}, "made for 1 to 512"),
        ({"kv_pool_tokens": 10**12}, "are available"),
        ({"attention_backend": "flash"}, "flash"),
        ({"dtype": "int4"}, "--dtype int4"),
    ],
)
def test_what_is_refused(random_folder, values, message) -> None:
    with pytest.raises(UsageError, match=message):
        load_service(settings(random_folder, **values))


def test_a_model_of_another_form(random_folder, tmp_path) -> None:
    shutil.copytree(random_folder, tmp_path / "other")
    config = json.loads((random_folder / "config.json").read_text())
    (tmp_path / "other" / "config.json").write_text(json.dumps({**config, "model_type": "mamba"}))
    with pytest.raises(UnsupportedModel, match="model_type"):
        load_service(settings(tmp_path / "other"))


def test_the_key_is_in_no_text(random_folder) -> None:
    assert "secret" not in repr(settings(random_folder, api_key="secret"))
