from __future__ import annotations

from pathlib import Path

import pytest

import deepdraft.infer.checkpoint.embedded as embedded
from deepdraft.errors import UsageError
from deepdraft.infer.checkpoint.open import open_checkpoint


def test_the_model_that_ships_with_the_package() -> None:
    try:
        path = embedded.embedded_model_path()
    except UsageError as error:
        pytest.skip(str(error))
    checkpoint = open_checkpoint(path)
    assert checkpoint.config.model_type == "deepseek_v3"
    assert checkpoint.config.max_context_len >= 200_000
    tokenizer = checkpoint.tokenizer()
    assert tokenizer.vocab_size <= checkpoint.config.vocab_size
    text = "def parse(self, text: str) -> list[str]:\n    return text.split()\n"
    assert tokenizer.decode(tokenizer.encode(text, add_special=False), skip_special=True) == text


def test_an_incomplete_installation_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "__file__", str(tmp_path / "infer" / "checkpoint" / "embedded.py"))
    with pytest.raises(UsageError, match="the embedded model is missing from this installation"):
        embedded.embedded_model_path()
