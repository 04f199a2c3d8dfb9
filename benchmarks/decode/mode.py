"""The engines that are compared: the embedded model without a drafter, and with it under each rule of speculation."""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.infer.drafters.drafter import Drafter
from deepdraft.infer.engine import Engine
from deepdraft.infer.models.model import Model
from deepdraft.infer.settings import EngineSettings, SpeculationSettings
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

NONE, NEVER, AUTO, TREE, CHAIN = "none", "never", "auto", "always", "chain"
MODES = (NONE, NEVER, AUTO, TREE, CHAIN)
"""No drafter at all; `--speculation never`, `auto` and `always`; `always` with the same drafter's chains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What all engines share."""

    model: Model
    tokenizer: Tokenizer
    drafter: Drafter
    settings: EngineSettings
    tree_budget: int


def engine(mode: str, parts: Parts) -> Engine:
    """An engine with a pool of its own."""
    if mode == NONE:
        return Engine(parts.model, parts.tokenizer, parts.settings)
    return Engine(parts.model, parts.tokenizer, parts.settings, parts.drafter, _speculation(mode, parts))


def _speculation(mode: str, parts: Parts) -> SpeculationSettings:
    if mode == CHAIN:
        return SpeculationSettings(mode="always", tree_budget=parts.drafter.draft_len, tree_top_k=1)
    if mode == AUTO:
        return SpeculationSettings(mode="auto", tree_budget=parts.tree_budget)
    if mode == TREE:
        return SpeculationSettings(mode="always", tree_budget=parts.tree_budget)
    return SpeculationSettings(mode="never", tree_budget=parts.tree_budget)
