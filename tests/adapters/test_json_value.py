"""Single values of a server's JSON: what is not what it should be counts as not told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.adapters.json_value import ids_of, object_of, text_of, whole

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
JSON = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (7, 7),
        ("7", 7),
        (7.0, 7),
        (7.5, None),
        (True, None),
        ("7.0", None),
        ("", None),
        (0, None),
        (-1, None),
        (None, None),
    ],
)
def test_whole_numbers(value: Any, found: int | None) -> None:
    assert whole(value) == found


def test_whole_numbers_from_nothing_on() -> None:
    assert (whole(0, 0), whole("0", 0), whole(-1, 0)) == (0, 0, None)


def test_token_ids() -> None:
    assert ids_of([1, 0, 7]) == [1, 0, 7]
    assert ids_of([]) == []
    assert ids_of([1, True]) is None
    assert ids_of([1, "2"]) is None
    assert ids_of("12") is None


@given(JSON)
def test_whatever_comes_is_read_or_not_told(value: Any) -> None:
    assert object_of(value) == (value if isinstance(value, dict) else {})
    assert text_of(value) in (None, value)
    assert ids_of(value) in (None, value)
    number = whole(value)
    assert number is None or number >= 1
