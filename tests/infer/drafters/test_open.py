from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from drafting_case import HIDDEN_SIZE, DrafterFolder, write_drafter

import deepdraft.infer.drafters.open as opening
from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.embedded import embedded_model_path
from deepdraft.infer.checkpoint.open import open_checkpoint
from deepdraft.infer.drafters.dflash import DflashDrafter
from deepdraft.infer.drafters.ngram import NgramDrafter
from deepdraft.infer.drafters.open import embedded_drafter_path, open_drafter
from deepdraft.infer.models.decoder import Decoder
from deepdraft.infer.models.load import load_model


@pytest.fixture(scope="module")
def target(target_of: Callable[[str], Any]) -> Decoder:
    decoder: Decoder = target_of("grouped").single
    return decoder


def test_none(target: Decoder) -> None:
    assert open_drafter("none", target) is None


def test_ngram(target: Decoder) -> None:
    drafter = open_drafter("ngram", target, draft_len=3)
    assert isinstance(drafter, NgramDrafter)
    assert (drafter.draft_len, drafter.scratch_len, drafter.tapped_layers, drafter.kv_layers) == (3, 0, (), ())


@pytest.mark.parametrize("spec", ["none", "ngram"])
def test_a_window_of_what_has_none(spec: str, target: Decoder) -> None:
    with pytest.raises(UsageError, match=f"a draft window or sink with the drafter {spec}"):
        open_drafter(spec, target, draft_window=512)


def test_a_folder_as_text_or_path(target: Decoder, usual: DrafterFolder) -> None:
    for spec in (usual.path, str(usual.path)):
        drafter = open_drafter(spec, target)
        assert isinstance(drafter, DflashDrafter)
        assert drafter.window.window_len is None
        assert drafter.draft_len == 5


def test_the_window_that_is_advised_and_the_one_that_is_asked_for(target: Decoder, tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "drafter", dflash_config={"draft_window_size": 512}).path
    for asked, expected in ((None, 512), (64, 64), (4096, 4096)):
        drafter = open_drafter(folder, target, draft_window=asked, draft_sink=4)
        assert isinstance(drafter, DflashDrafter)
        assert (drafter.window.window_len, drafter.window.sink_len) == (expected, 4)


def test_no_folder(target: Decoder, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no drafter at .*: no such folder") as refused:
        open_drafter("dflahs", target)
    assert "none, ngram, embedded" in str(refused.value.hint)
    with pytest.raises(UsageError, match=r"config\.json is missing"):
        open_drafter(tmp_path, target)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hidden_norm.weight", "has no tensor hidden_norm.weight"),
        ("layers.2.self_attn.k_norm.weight", r"has no tensor layers\.2\.self_attn\.k_norm\.weight"),
    ],
)
def test_a_tensor_that_is_missing(name: str, message: str, target: Decoder, tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "drafter", without=[name]).path
    with pytest.raises(UsageError, match=message):
        open_drafter(folder, target)


@pytest.mark.parametrize(
    "name", ["layers.0.mlp_conv.base_kernel", "layers.3.input_layernorm.weight", "lm_head.weight"]
)
def test_a_tensor_that_has_no_place(name: str, target: Decoder, tmp_path: Path) -> None:
    folder = write_drafter(tmp_path / "drafter", extra={name: torch.ones(4)}).path
    with pytest.raises(UsageError, match=f"has 1 tensors that have no place .* the first is {name}"):
        open_drafter(folder, target)


def test_a_tensor_of_another_shape(target: Decoder, tmp_path: Path) -> None:
    wrong = {"fc.weight": torch.ones(HIDDEN_SIZE, 2 * HIDDEN_SIZE)}
    folder = write_drafter(tmp_path / "drafter", extra=wrong).path
    with pytest.raises(UsageError, match=r"tensor fc\.weight is \[48, 96\], the config asks for \[48, 144\]"):
        open_drafter(folder, target)


def test_an_incomplete_installation_is_said(target: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "__file__", str(tmp_path / "infer" / "drafters" / "open.py"))
    with pytest.raises(UsageError, match="the embedded drafter is missing from this installation"):
        open_drafter("embedded", target)


def test_the_drafter_that_ships_with_the_package_is_the_embedded_models() -> None:
    try:
        embedded_drafter_path()
        model = load_model(open_checkpoint(embedded_model_path()))
    except UsageError as error:
        pytest.skip(str(error))
    drafter = open_drafter("embedded", model)
    assert isinstance(drafter, DflashDrafter)
    assert drafter.draft_len >= 3
