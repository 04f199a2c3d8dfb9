"""JSON as servers really write it: read strictly and fast first, leniently when that fails.

Python servers emit NaN and Infinity, and a character cut in half can arrive as a lone surrogate; neither is JSON,
and both have been seen in answers that are otherwise good. What comes back can always be written to a results file.
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec

_strict = msgspec.json.Decoder().decode


def decoded(data: bytes) -> Any:
    """The JSON value of `data`. Raises ValueError when it is none; NaN and infinities become None."""
    try:
        return _strict(data)
    except msgspec.DecodeError:
        pass
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None
    try:
        return _writable(json.loads(data.decode("utf-8", "replace")))
    except RecursionError:
        raise ValueError("JSON nested too deeply") from None


def decoded_object(data: bytes) -> dict[str, Any] | None:
    """The JSON object in `data`, or None when it holds anything else."""
    try:
        value = decoded(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def writable_text(text: str) -> str:
    """The text with lone surrogates replaced, so that it can be encoded."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _writable(value: Any) -> Any:
    if isinstance(value, dict):
        return {writable_text(key): _writable(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_writable(entry) for entry in value]
    if isinstance(value, str):
        return writable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
