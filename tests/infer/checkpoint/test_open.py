from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from gguf_writing import write_gguf
from safetensors.torch import save_file

from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.folder import FolderCheckpoint
from deepdraft.infer.checkpoint.gguf_checkpoint import GgufCheckpoint
from deepdraft.infer.checkpoint.open import open_checkpoint


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    save_file({"model.norm.weight": torch.ones(8)}, tmp_path / "model.safetensors")
    assert isinstance(open_checkpoint(tmp_path), FolderCheckpoint)
    assert isinstance(open_checkpoint(str(tmp_path)), FolderCheckpoint)


def test_a_gguf_file(tmp_path: Path) -> None:
    assert isinstance(open_checkpoint(write_gguf(tmp_path / "Model.GGUF")), GgufCheckpoint)


def test_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.bin").touch()
    for path, words in (
        (tmp_path / "nowhere", "no such file or folder"),
        (tmp_path / "model.bin", "neither a folder nor a .gguf file"),
        (tmp_path, "config.json is missing"),
    ):
        with pytest.raises(UsageError, match=words) as refused:
            open_checkpoint(path)
        assert str(path) in refused.value.message
        assert refused.value.hint
