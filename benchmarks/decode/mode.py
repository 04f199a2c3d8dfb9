"""The engines that are compared: the embedded model without a drafter, and with it under each rule of speculation."""

from __future__ import annotations

from collections.abc import Callable
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
    """What engines are made of."""

    model: Model
    tokenizer: Tokenizer
    new_drafter: Callable[[], Drafter]
    """Each engine has one of its own: what one mode found out is no other's."""
    settings: EngineSettings
    tree_budget: int


def engine(mode: str, parts: Parts) -> Engine:
    """An engine with a pool of its own."""
    if mode == NONE:
        return Engine(parts.model, parts.tokenizer, parts.settings)
    drafter = parts.new_drafter()
    speculation = _speculation(mode, parts.tree_budget, drafter.draft_len)
    return Engine(parts.model, parts.tokenizer, parts.settings, drafter, speculation)


def _speculation(mode: str, tree_budget: int, draft_len: int) -> SpeculationSettings:
    if mode == CHAIN:
        return SpeculationSettings(mode="always", tree_budget=draft_len, tree_top_k=1)
    if mode == AUTO:
        return SpeculationSettings(mode="auto", tree_budget=tree_budget)
    if mode == TREE:
        return SpeculationSettings(mode="always", tree_budget=tree_budget)
    return SpeculationSettings(mode="never", tree_budget=tree_budget)
