"""Shapes of a few models that long-context deployments name without a config.json at hand."""

from __future__ import annotations

import re

from deepdraft.cost.bundled_config import bundled_config
from deepdraft.cost.model_json import ModelShape, shape_of_config

_KIMI_K2 = {"num_attention_heads": 64, "vocab_size": 163840, "n_routed_experts": 384, "first_k_dense_replace": 1}
"""What Kimi K2 has otherwise than DeepSeek-V3."""
_KNOWN: tuple[tuple[re.Pattern[str], str, dict[str, int]], ...] = (
    (re.compile(r"kimi[ _-]?k2\.[5-9]", re.IGNORECASE), "kimi-k2.6", {}),
    (re.compile(r"kimi[ _-]?k2(?!\.)", re.IGNORECASE), "deepseek-v3", _KIMI_K2),
    (re.compile(r"deepseek[ _-]?(v3(?!\.2)|r1(?!.*distill))", re.IGNORECASE), "deepseek-v3", {}),
)


def known_model(name: str) -> ModelShape | None:
    """The shape of the model that a name tells: Kimi K2.x (INT4 experts from K2.5 on), DeepSeek V3, V3.1 and R1; None
    for every other name."""
    for pattern, bundled, changes in _KNOWN:
        if pattern.search(name):
            found = bundled_config(bundled)
            assert found is not None
            config = {field: value for field, value in found.config.items() if field != "model_type"}
            return shape_of_config(config | changes, name=name)
    return None
