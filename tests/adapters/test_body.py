"""Bodies of requests: what is sent for a wish, of the fields that a server took."""

from __future__ import annotations

from typing import Any

import pytest

from deepdraft.adapters.body import Wish, cold_fields, length_and_report_fields, openai_body
from deepdraft.adapters.field import INCLUDE_USAGE
from deepdraft.errors import UsageError

TAKEN: dict[str, Any] = {
    INCLUDE_USAGE: True,
    "ignore_eos": True,
    "min_tokens": None,
    "cache_salt": None,
    "cache_prompt": False,
}


def body(route: str, wish: Wish, **others: Any) -> dict[str, Any]:
    return openai_body(route, wish, **{"model": "m", "max_tokens_field": "max_tokens", **others})


def used(wish: Wish, **others: Any) -> dict[str, Any]:
    return length_and_report_fields(TAKEN, wish, exact_length_field="min_tokens", salt_field="cache_salt", **others)


def test_a_chat_wraps_the_prompt_in_a_message() -> None:
    assert body("chat", Wish(prompt="hi", max_tokens=8, seed=3)) == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 8,
        "temperature": 0.0,
        "stream": True,
        "seed": 3,
    }


@pytest.mark.parametrize("prompt", ["hi", [1, 2]])
def test_a_completion_sends_text_or_ids_as_they_are(prompt: str | list[int]) -> None:
    found = body(
        "completions", Wish(prompt=prompt, max_tokens=8), model=None, max_tokens_field="max_completion_tokens"
    )
    assert found == {"prompt": prompt, "max_completion_tokens": 8, "temperature": 0.0, "stream": True}


def test_ids_are_no_chat() -> None:
    with pytest.raises(UsageError, match="no token ids"):
        body("chat", Wish(prompt=[1], max_tokens=8))


def test_the_length_is_forced_unless_it_may_end_early() -> None:
    assert used(Wish(prompt="hi", max_tokens=8)) == {INCLUDE_USAGE: True, "ignore_eos": True, "min_tokens": 8}
    assert used(Wish(prompt="hi", max_tokens=8, stop_early=True)) == {INCLUDE_USAGE: True}


def test_a_request_is_kept_cold_by_what_the_server_took() -> None:
    assert cold_fields(TAKEN, "salt", "cache_salt") == {"cache_salt": "salt", "cache_prompt": False}
    assert cold_fields(TAKEN, None, "cache_salt") == {"cache_prompt": False}
    assert cold_fields((INCLUDE_USAGE,), "salt", "cache_salt") == {}
    assert cold_fields(("cache_salt",), "salt", None) == {}
