"""Fields of a Hugging Face config.json, by any of the names they go by, checked for their type."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepdraft.errors import UsageError

Config = Mapping[str, Any]
_NESTED = ("text_config", "llm_config", "language_config")


def read_config(path: Path) -> dict[str, Any]:
    """The object in a config.json. Raises UsageError where there is none."""
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"can't read the model's config {path}: {error}") from None
    if not isinstance(config, dict):
        raise UsageError(f"{path} is not a model's config.json: not a JSON object")
    return config


def text_config(config: Config) -> Config:
    """The part that describes the language model: nested in multimodal models, else the whole."""
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        return text_config(thinker)
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping) and "hidden_size" in inner:
            return inner
    return config


def whole(config: Config, field: str) -> int:
    """A positive whole number. Raises UsageError where the field is missing or anything else."""
    value = config.get(field)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"the model's config has no usable {field}: {value!r}")
    return value


def first_whole(config: Config, fields: tuple[str, ...]) -> int | None:
    """The first of the fields that holds a whole number, 0 included; None where none does."""
    for field in fields:
        value = config.get(field)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None


def quantization(config: Config) -> Mapping[str, Any]:
    """How the checkpoint's weights are quantised, wherever the config says it; empty where it doesn't."""
    for place in (config, text_config(config)):
        found = place.get("quantization_config") or place.get("compression_config")
        if isinstance(found, Mapping):
            return found
    return {}


def quantised_bits(stated: Mapping[str, Any]) -> float | None:
    """Bits of the quantised weights, scales left out; None where they aren't told."""
    bits = stated.get("bits") or stated.get("num_bits")
    groups = stated.get("config_groups")
    if bits is None and isinstance(groups, Mapping):
        for group in groups.values():
            weights = group.get("weights") if isinstance(group, Mapping) else None
            bits = bits or (weights.get("num_bits") if isinstance(weights, Mapping) else None)
    method = " ".join(str(stated.get(field, "")) for field in ("quant_method", "quant_algo")).lower()
    if bits is None:
        bits = 4 if "fp4" in method else 8 if "fp8" in method else None
    return float(bits) if isinstance(bits, int | float) and not isinstance(bits, bool) else None


def scale_bits(stated: Mapping[str, Any]) -> float:
    """Bits of the scales, for each quantised weight: 16 bits for a group of integers, 8 for a block of 4-bit floats
    (32 numbers in the MX format, 16 in NVIDIA's), 32 for a square of fp8."""
    square = stated.get("weight_block_size")
    if isinstance(square, list) and len(square) == 2:
        return 32.0 / (int(square[0]) * int(square[1]))
    if "mxfp4" in str(stated.get("quant_method", "")):
        return 8 / 32
    groups = stated.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else (stated,):
        inner = group.get("weights") if isinstance(group, Mapping) else None
        weights = inner if isinstance(inner, Mapping) else group if isinstance(group, Mapping) else {}
        size = weights.get("group_size")
        if isinstance(size, int) and size > 0:
            is_float = weights.get("type") == "float" or "fp4" in str(stated.get("quant_algo", "")).lower()
            return (8 if is_float else 16) / size
    return 0.0


def dtype_name(config: Config) -> str:
    """bfloat16, float16 or float32, as the config says; bfloat16 where it doesn't."""
    inner = text_config(config)
    for place in (inner, config):
        for field in ("torch_dtype", "dtype"):
            if isinstance(place.get(field), str):
                return str(place[field]).removeprefix("torch.")
    return "bfloat16"
