"""Optional fields of a request body: which a server refused, by its own words, and how a body is put together.

Fields are named by their path, `stream_options.include_usage`; a value is what is sent when the field is used.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

INCLUDE_USAGE = "stream_options.include_usage"
CONTINUOUS_USAGE = "stream_options.continuous_usage_stats"


def nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as they stand in a body: `{"a.b": 1}` becomes `{"a": {"b": 1}}`."""
    body: dict[str, Any] = {}
    for path, value in fields.items():
        *parents, name = path.split(".")
        place = body
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = value
    return body


def merged(body: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The body with `extra` over it; objects on both sides are merged, anything else is replaced."""
    result = dict(body)
    for key, value in extra.items():
        mine = result.get(key)
        result[key] = merged(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return result


def refused_fields(words: str, paths: Collection[str]) -> tuple[str, ...]:
    """Which of the fields a refusal names.

    The innermost name counts: a message about `stream_options.continuous_usage_stats` names its parent too, and only
    the child is at fault; a parent named alone takes all its children with it.
    """
    named = tuple(path for path in paths if _has_word(words, path.rpartition(".")[2]))
    if named:
        return named
    return tuple(path for path in paths if "." in path and _has_word(words, path.partition(".")[0]))


def _has_word(words: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)|\.{re.escape(name)}(?!\w)", words) is not None
