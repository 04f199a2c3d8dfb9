"""Prompts of random lengths, and what the server answers to each when it has nothing else to do: the truth that
answers under load are held against."""

from __future__ import annotations

import inspect
import json
import random
from dataclasses import dataclass

from .wire import Address, ask

_MODULES = ("argparse", "asyncio.base_events", "ast", "difflib", "doctest", "inspect", "typing", "unittest.mock")


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """A prompt and its greedy answer, alone and cold."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]


async def known_answers(
    address: Address, *, num_prompts: int, max_prompt_len: int, max_tokens: int, seed: int
) -> list[Known]:
    """Ask each alone, with an empty cache. Half of the prompts share a beginning with another, as real ones do."""
    rng = random.Random(seed)
    text = "\n".join(inspect.getsource(__import__(name, fromlist=["_"])) for name in _MODULES)
    _, body = await ask(address, "POST", "/tokenize", {"prompt": text, "add_special_tokens": False})
    token_ids: list[int] = json.loads(body)["tokens"]
    known: list[Known] = []
    for number in range(num_prompts):
        prompt_len = int(16 * (max_prompt_len / 16) ** rng.random())
        start = rng.randrange(max(1, len(token_ids) - prompt_len))
        prompt = tuple(token_ids[start : start + prompt_len])
        if number % 2 and known:
            shared = rng.choice(known).prompt
            prompt = (*shared[: rng.randint(1, len(shared))], *prompt)[:max_prompt_len]
        status, _ = await ask(address, "POST", "/flush_cache")
        assert status == 200, "nobody else uses the server"
        known.append(Known(prompt=prompt, output=await _alone(address, prompt, max_tokens)))
    return known


async def _alone(address: Address, prompt: tuple[int, ...], max_tokens: int) -> tuple[int, ...]:
    status, body = await ask(address, "POST", "/v1/completions", completion(prompt, max_tokens))
    assert status == 200, body
    return tuple(json.loads(body)["choices"][0]["token_ids"])


def completion(prompt: tuple[int, ...], max_tokens: int, **fields: object) -> dict[str, object]:
    """A greedy request of a stated length that tells its token ids."""
    return {
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        **fields,
    }
