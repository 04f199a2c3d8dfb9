"""A drafter's shape from its config.json, and the drafter that a target's own prediction layers make."""

from __future__ import annotations

from dataclasses import replace

from deepdraft.cost.config_field import Config, first_whole
from deepdraft.cost.kv_family import Compressed, Family, Grouped, Index, Latent
from deepdraft.errors import UsageError
from deepdraft.planner.shape import Drafter, DrafterKind, Model, Shape, Weights
from deepdraft.planner.shape_config import shape_of_config

_EAGLE3_TAPS = 3
"""EAGLE-3 reads a low, a middle and a high layer (arXiv 2503.01840, 3.1)."""


def drafter_of_config(config: Config, weights: Weights, name: str) -> Drafter:
    """The drafter that a checkpoint of its own describes. Raises UsageError as `shape_of_config` does."""
    kind = _kind(config)
    dflash = config.get("dflash_config")
    own: Config = dflash if isinstance(dflash, dict) else {}
    layer_ids = own.get("target_layer_ids") or config.get("target_layer_ids")
    shape = shape_of_config(config, name)
    num_taps = len(layer_ids) if isinstance(layer_ids, list) else {"eagle3": _EAGLE3_TAPS, "eagle": 1}.get(kind, 0)
    return Drafter(
        kind=kind,
        shape=shape,
        weights=weights if weights.is_exact else _with_taps(weights, num_taps if kind == "dflash" else 0, shape),
        block_size=first_whole(config, ("block_size",)) or first_whole(own, ("block_size",)),
        num_taps=num_taps,
    )


def mtp_drafter(target: Model) -> Drafter:
    """The target's own layers for multi-token prediction: each of the target's last kind of attention. DeepSeek-V4's
    have a window and compress nothing (a ratio of 0 at the end of compress_ratios).

    Raises UsageError where the target has none.
    """
    shape = target.shape
    if not shape.num_mtp_layers:
        raise UsageError(f"{shape.name} has no layers for multi-token prediction", hint="give --drafter a checkpoint")
    families = tuple(
        _with_layers(each, shape.num_mtp_layers) for each in shape.families if _is_of_drafts(each, shape)
    )
    if not families:
        raise UsageError(f"what the prediction layers of {shape.name} keep is not known here")
    return Drafter(
        kind="mtp",
        shape=replace(shape, name=f"{shape.name} MTP", families=families, num_layers=shape.num_mtp_layers),
        weights=Weights(
            total_bytes=target.weights.mtp_bytes, is_exact=target.weights.is_exact, source=target.weights.source
        ),
        num_taps=1,
    )


def _is_of_drafts(family: Family, shape: Shape) -> bool:
    if any(isinstance(each, Compressed) for each in shape.families):
        return isinstance(family, Compressed) and family.window is not None
    return isinstance(family, Latent | Index) or (isinstance(family, Grouped) and family.window is None)


def _with_taps(weights: Weights, num_taps: int, shape: Shape) -> Weights:
    """With DFlash's projection of its taps, a plain matrix that every rank holds."""
    return replace(weights, replicated_bytes=weights.replicated_bytes + 2 * num_taps * shape.hidden**2)


def _with_layers(family: Family, num_layers: int) -> Family:
    return replace(family, num_layers=num_layers)


def _kind(config: Config) -> DrafterKind:
    architectures = " ".join(str(each) for each in config.get("architectures") or ()).lower()
    if "dflash" in architectures or "dflash_config" in config:
        return "dflash"
    if "eagle3" in architectures:
        return "eagle3"
    return "eagle" if "eagle" in architectures else "standalone"
