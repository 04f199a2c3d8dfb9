"""Rotary embedding's fields of a config.json, in both forms that transformers has written.

Until version 4: `rope_theta` beside `rope_scaling` ({"type": ...} or {"rope_type": ...}); since 5 all in
`rope_parameters`. Where both stand, rope_scaling counts, as in transformers.
"""

from __future__ import annotations

from typing import Any

from deepdraft.infer.checkpoint.field import Fields
from deepdraft.infer.config import RopeShape

_DEFAULT_THETA = 10_000.0
_KINDS = ("default", "linear", "llama3", "yarn")


def rope_shape(config: Fields, *, max_context_len: int, is_interleaved: bool) -> RopeShape:
    """The rotary embedding a config states; where it says no length before scaling, that is `max_context_len`.

    Raises UnsupportedModel for a kind there is no code for.
    """
    rope = _parameters(config)
    config.only("partial_rotary_factor", 1.0)
    rope.only("partial_rotary_factor", 1.0)
    rope.absent("mrope_section", "rotary embedding over several axes is not supported")
    kind = rope.stated.get("rope_type", rope.stated.get("type", "default"))
    if kind not in _KINDS:
        name = "rope_type" if "rope_type" in rope.stated else "type"
        raise rope.refused(name, kind, f"supported are {', '.join(_KINDS)}")
    theta = rope.number("rope_theta") if rope.has("rope_theta") else config.number("rope_theta", _DEFAULT_THETA)
    scaling: dict[str, Any] = {}
    if kind != "default":
        scaling["factor"] = rope.number("factor")
    if kind in ("linear", "llama3"):
        rope.absent("mscale_all_dim", "it goes with yarn only")
    if kind in ("llama3", "yarn"):
        scaling["original_max_position_embeddings"] = _original_len(config, rope) or max_context_len
    if kind == "llama3":
        scaling["low_freq_factor"] = rope.number("low_freq_factor")
        scaling["high_freq_factor"] = rope.number("high_freq_factor")
    elif kind == "yarn":
        scaling |= _yarn(rope)
    return RopeShape(theta=theta, kind=kind, is_interleaved=is_interleaved, **scaling)


def _parameters(config: Fields) -> Fields:
    name = "rope_scaling" if config.stated.get("rope_scaling") else "rope_parameters"
    stated = config.stated.get(name) or {}
    if not isinstance(stated, dict):
        raise config.refused(name, stated, "it must be an object")
    nested = [key for key, value in stated.items() if isinstance(value, dict)]
    if nested:
        raise config.refused(f"{name}.{nested[0]}", stated[nested[0]], "rotary embedding per layer is not supported")
    return Fields(stated, path=f"{config.path}{name}.")


def _original_len(config: Fields, rope: Fields) -> int | None:
    """A field of its own counts first, then the one among the rope's."""
    name = "original_max_position_embeddings"
    return config.optional_integer(name) or rope.optional_integer(name)


def _yarn(rope: Fields) -> dict[str, Any]:
    return {
        "beta_fast": rope.optional_number("beta_fast") or 32.0,
        "beta_slow": rope.optional_number("beta_slow") or 1.0,
        "mscale": _not_zero(rope, "mscale"),
        "mscale_all_dim": _not_zero(rope, "mscale_all_dim"),
        "attention_factor": rope.optional_number("attention_factor"),
        "is_truncated": rope.flag("truncate", True),
    }


def _not_zero(rope: Fields, name: str) -> float | None:
    """0 is how configs write that there is none."""
    return rope.number(name) if rope.stated.get(name) else None
