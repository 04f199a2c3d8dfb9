"""From what the user names to a model: a config.json, the folder of a checkpoint, a GGUF file, or a bundled shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from deepdraft.cost.bundled_config import bundled_names
from deepdraft.cost.config_field import read_config
from deepdraft.errors import UsageError
from deepdraft.planner.bundled import bundled_drafter, bundled_model
from deepdraft.planner.drafter_config import drafter_of_config, mtp_drafter
from deepdraft.planner.gguf import open_gguf
from deepdraft.planner.shape import Drafter, Model, Shape, Weights
from deepdraft.planner.shape_config import shape_of_config
from deepdraft.planner.weights import checkpoint_weights, estimated_weights, stated_weights


def open_model(text: str, *, drafter: str | None = None, weight_bytes: int | None = None) -> Model:
    """The model that `text` names, with its drafter: "mtp" for the target's own prediction layers, else a folder,
    config.json or bundled name like the model's. `weight_bytes` replaces whatever is known of the target's weights.

    Raises UsageError for a name that is none of these, a config that can't be read, an attention not known, or
    weights that neither the checkpoint nor the config tells.
    """
    model = _target(text, weight_bytes)
    if drafter is None:
        return model
    if drafter == "mtp":
        return replace(model, drafter=mtp_drafter(model))
    return replace(model, drafter=_drafter(drafter))


def _target(text: str, weight_bytes: int | None) -> Model:
    bundled = bundled_model(text)
    if bundled is not None and not Path(text).exists():
        if weight_bytes is None:
            return bundled
        return replace(bundled, weights=replace(bundled.weights, total_bytes=weight_bytes, source="as told"))
    if text.endswith(".gguf"):
        return open_gguf(Path(text))
    config, folder, name = _read(text)
    shape = shape_of_config(config, name)
    return Model(shape=shape, weights=_weights(config, shape, folder, weight_bytes))


def _drafter(text: str) -> Drafter:
    bundled = bundled_drafter(text)
    if bundled is not None and not Path(text).exists():
        return bundled
    config, folder, name = _read(text)
    return drafter_of_config(config, _weights(config, shape_of_config(config, name), folder, None), name)


def _read(text: str) -> tuple[dict[str, Any], Path | None, str]:
    """The config, the folder with weights if there are some, and a name."""
    path = Path(text)
    if path.is_dir():
        config = read_config(path / "config.json")
        return _with_quantization(config, path), path, path.resolve().name
    if path.is_file():
        config = read_config(path)
        folder = path.parent if path.name == "config.json" and any(path.parent.glob("*.safetensors")) else None
        return _with_quantization(config, path.parent), folder, path.resolve().parent.name
    names = ", ".join(bundled_names())
    raise UsageError(f"{text!r} is no file, no folder and no shape I know", hint=f"bundled shapes: {names}")


def _with_quantization(config: dict[str, Any], folder: Path) -> dict[str, Any]:
    """With the quantisation of hf_quant_config.json, where ModelOpt wrote it beside the config."""
    beside = folder / "hf_quant_config.json"
    if not beside.is_file():
        return config
    stated = read_config(beside).get("quantization")
    own = config.get("quantization_config")
    if not isinstance(stated, Mapping):
        return config
    return config | {"quantization_config": {**stated, **(own if isinstance(own, Mapping) else {})}}


def _weights(config: dict[str, Any], shape: Shape, folder: Path | None, weight_bytes: int | None) -> Weights:
    if weight_bytes is not None:
        return stated_weights(config, shape, weight_bytes, source="as told")
    if folder is not None and any(folder.glob("*.safetensors")):
        return checkpoint_weights(folder, shape)
    return estimated_weights(config, shape)
