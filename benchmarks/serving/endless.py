"""A model folder whose answers never end by themselves, for servers that can't be told to ignore the end of text."""

from __future__ import annotations

import json
from pathlib import Path

_CONFIGS = ("config.json", "generation_config.json")


def make_endless(source: Path, target: Path) -> None:
    """Link every file of a Hugging Face folder into `target`, the configs without their end-of-text tokens."""
    target.mkdir(parents=True)
    for file in source.iterdir():
        if file.name not in _CONFIGS:
            (target / file.name).symlink_to(file.resolve())
    for name in _CONFIGS:
        path = source / name
        config = json.loads(path.read_text()) if path.is_file() else {}
        (target / name).write_text(json.dumps({**config, "eos_token_id": None}, indent=2))
