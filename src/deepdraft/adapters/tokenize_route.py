"""The /tokenize route as vLLM has it and our own server took it over: token ids of a text, and the count of a prompt
with everything the server puts around it."""

from __future__ import annotations

from typing import Any

from deepdraft.adapters.json_value import ids_of, object_of, whole
from deepdraft.adapters.server import Server


async def token_ids(server: Server, model: str | None, text: str) -> list[int] | None:
    """Ids of a raw text, without special tokens; None when the route does not answer."""
    body = {"model": model, "prompt": text, "add_special_tokens": False}
    return ids_of(object_of(await server.try_json("/tokenize", body)).get("tokens"))


async def prompt_len(server: Server, model: str | None, text: str, *, is_chat: bool) -> int | None:
    """Tokens of a prompt as the server will count them, chat template or BOS included; None when the route does not
    answer."""
    body: dict[str, Any] = {"model": model}
    if is_chat:
        body |= {"messages": [{"role": "user", "content": text}], "add_generation_prompt": True}
    else:
        body |= {"prompt": text, "add_special_tokens": True}
    return whole(object_of(await server.try_json("/tokenize", body)).get("count"))
