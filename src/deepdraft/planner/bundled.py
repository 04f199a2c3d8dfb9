"""Models and drafters that can be planned by name alone (cost.bundled_config)."""

from __future__ import annotations

from deepdraft.cost.bundled_config import BundledConfig, bundled_config
from deepdraft.planner.drafter_config import drafter_of_config
from deepdraft.planner.shape import Drafter, Model, Weights
from deepdraft.planner.shape_config import shape_of_config
from deepdraft.planner.weights import stated_weights

_DRAFTERS = ("kimi-k2.6-dflash",)


def bundled_model(name: str) -> Model | None:
    """The model of that name; None for another name, or a drafter's."""
    found = bundled_config(name)
    if found is None or found.name in _DRAFTERS:
        return None
    return Model(shape=shape_of_config(found.config, found.name), weights=_weights(found))


def bundled_drafter(name: str) -> Drafter | None:
    """The drafter of that name; None for another name."""
    found = bundled_config(name)
    if found is None or found.name not in _DRAFTERS:
        return None
    return drafter_of_config(found.config, _weights(found), found.name)


def _weights(found: BundledConfig) -> Weights:
    shape = shape_of_config(found.config, found.name)
    return stated_weights(found.config, shape, found.total_bytes, mtp_bytes=found.mtp_bytes, source=found.source)
