"""Configs of models that can be named without a file: cut to the fields that memory and cost follow from, with the
bytes their checkpoints store.

One JSON file a model in `shapes/`: {"config": ..., "weights": {"total_bytes", "mtp_bytes", "source"}}; total_bytes is
without the layers for multi-token prediction. Drafters stand beside models.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

_FOLDER = files("deepdraft.cost") / "shapes"


@dataclass(frozen=True, slots=True, kw_only=True)
class BundledConfig:
    """One model or drafter."""

    name: str
    config: dict[str, Any]
    total_bytes: int
    mtp_bytes: int
    source: str
    """Where the bytes are told."""


def bundled_names() -> tuple[str, ...]:
    """All names, drafters included."""
    return tuple(sorted(each.name.removesuffix(".json") for each in _FOLDER.iterdir() if each.name.endswith(".json")))


def bundled_config(name: str) -> BundledConfig | None:
    """The one of that name, None for others. Case doesn't matter, the owner may stand before it and a tuning behind
    it: moonshotai/Kimi-K2.6, google/gemma-3-27b-it."""
    plain = name.strip().lower().rsplit("/", 1)[-1].removesuffix("-instruct").removesuffix("-it")
    if plain not in bundled_names():
        return None
    entry = json.loads((_FOLDER / f"{plain}.json").read_text())
    stored = entry["weights"]
    return BundledConfig(
        name=plain,
        config=entry["config"],
        total_bytes=stored["total_bytes"],
        mtp_bytes=stored.get("mtp_bytes", 0),
        source=stored["source"],
    )
