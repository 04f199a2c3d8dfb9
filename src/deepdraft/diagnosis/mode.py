"""How a server runs its steps, as far as its settings tell."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepdraft.diagnosis.case import Case

_FLAGS = ("disable_cuda_graph", "enforce_eager")


def is_eager(case: Case) -> bool:
    """Whether the settings say that steps run without CUDA graphs. False also where they say nothing."""
    return any(_flag(case.settings, name) is True for name in _FLAGS)


def has_graphs(case: Case) -> bool:
    """Whether the settings say that steps run in CUDA graphs."""
    return any(_flag(case.settings, name) is False for name in _FLAGS)


def _flag(settings: Mapping[str, Any], name: str) -> bool | None:
    value = settings.get(name)
    if isinstance(value, bool):
        return value
    inner = settings.get("vllm_config")
    if isinstance(inner, Mapping):
        model = inner.get("model_config")
        for place in (inner, model if isinstance(model, Mapping) else {}):
            if isinstance(place.get(name), bool):
                return bool(place[name])
    return None
