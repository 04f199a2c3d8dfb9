"""Optional fields: how bodies are put together, and which one a refusal means."""

from __future__ import annotations

import pytest

from deepdraft.adapters.field import merged, nested, refused_fields

FIELDS = ["stream_options.include_usage", "stream_options.continuous_usage_stats", "ignore_eos", "cache_salt"]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("Unexpected fields in the request: {'ignore_eos'}", ["ignore_eos"]),
        ("Unexpected fields in the request: {'ignore_eos', 'cache_salt'}", ["ignore_eos", "cache_salt"]),
        ("Unrecognized request argument supplied: ignore_eos", ["ignore_eos"]),
        ("stream_options.continuous_usage_stats: Extra inputs are not permitted", [FIELDS[1]]),
        ("[{'type': 'extra_forbidden', 'loc': ('body', 'stream_options', 'continuous_usage_stats')}]", [FIELDS[1]]),
        ("stream_options is not supported", FIELDS[:2]),
        ("Extra inputs are not permitted", []),
        ("cache_salts: no", []),
    ],
)
def test_refused_fields(words: str, named: list[str]) -> None:
    assert list(refused_fields(words, FIELDS)) == named


def test_nested() -> None:
    assert nested({"a.b": 1, "a.c": 2, "d": 3}) == {"a": {"b": 1, "c": 2}, "d": 3}


def test_the_users_fields_come_last_and_keep_what_they_do_not_name() -> None:
    body = {"stream_options": {"include_usage": True}, "temperature": 0.0}
    extra = {"stream_options": {"x": 1}, "temperature": 0.7, "top_k": 5}
    assert merged(body, extra) == {
        "stream_options": {"include_usage": True, "x": 1},
        "temperature": 0.7,
        "top_k": 5,
    }
