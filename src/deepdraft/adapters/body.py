"""Bodies of generation requests: what one request wishes for, written as OpenAI's routes have it.

Which optional fields a server takes, and what an engine's own routes look like, is the adapters' business.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from deepdraft.errors import UsageError

CACHE_PROMPT = "cache_prompt"
"""llama.cpp's field: false keeps a request away from what is cached of earlier prompts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What one request asks for, whatever the engine calls it."""

    prompt: str | list[int]
    """Text, or token ids where the route takes them."""
    max_tokens: int
    cache_salt: str | None = None
    """Separates its cache entries from all others, where the engine knows a salt."""
    temperature: float = 0.0
    seed: int | None = None
    stop_early: bool = False
    """Let the model end its answer when it wants to."""


def openai_body(route: str, wish: Wish, *, model: str | None, max_tokens_field: str) -> dict[str, Any]:
    """The fields that every server takes on the chat and completions routes. Raises UsageError for token ids on the
    chat route."""
    body: dict[str, Any] = {} if model is None else {"model": model}
    if route != "chat":
        body["prompt"] = wish.prompt
    elif isinstance(wish.prompt, str):
        body["messages"] = [{"role": "user", "content": wish.prompt}]
    else:
        raise UsageError("the chat endpoint takes no token ids", hint="use --endpoint completions")
    body |= {max_tokens_field: wish.max_tokens, "temperature": wish.temperature, "stream": True}
    if wish.seed is not None:
        body["seed"] = wish.seed
    return body


def length_and_report_fields(
    fields: Mapping[str, Any], wish: Wish, *, exact_length_field: str | None, salt_field: str | None
) -> dict[str, Any]:
    """Of the optional fields (path -> value) those that this wish uses, less the ones that keep it cold: what forces
    the answer's length, unless it may end early, and what makes the server report more."""
    used = {path: value for path, value in fields.items() if path not in (salt_field, CACHE_PROMPT)}
    length_fields = {"ignore_eos", exact_length_field}
    if wish.stop_early:
        return {path: value for path, value in used.items() if path not in length_fields}
    if exact_length_field in used:
        used[exact_length_field] = wish.max_tokens
    return used


def cold_fields(taken: Collection[str], cache_salt: str | None, salt_field: str | None) -> dict[str, Any]:
    """Fields that keep a request from being served from the prefix cache, of those that the server took."""
    found: dict[str, Any] = {}
    if cache_salt is not None and salt_field is not None and salt_field in taken:
        found[salt_field] = cache_salt
    if CACHE_PROMPT in taken:
        found[CACHE_PROMPT] = False
    return found
