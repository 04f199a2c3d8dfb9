"""One client of the mix: answers read to the end and checked, answers left half read, and requests that are none."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from .prompts import Known, completion
from .wire import Address, asking

_DISCONNECTED_FRAC = 0.20
_MALFORMED_FRAC = 0.05
_LEAVE_WITHIN_S = 2.0
_LEAVE_WITHIN_EVENTS = 12
_MALFORMED = (
    b"",
    b"{",
    b"[1, 2]",
    b'{"prompt": "\xff"}',
    b'{"prompt": "a", "max_tokens": -1}',
    b'{"prompt": "a", "temperature": NaN}',
    b'{"prompt": [99999999]}',
    b'{"prompt": "a", "max_tokens": 100000000}',
    b'{"prompt": "a", "model": "another"}',
    b'{"prompt": "a", "logit_bias": {"1": 5}}',
    b'{"prompt": ' + b"[" * 5000 + b"]" * 5000 + b"}",
)


@dataclass
class Tally:
    """What all clients saw."""

    counts: Counter[str] = field(default_factory=Counter)
    """completed, disconnected, malformed, turned_away (503)"""
    num_output_tokens: int = 0
    wrong: list[str] = field(default_factory=list)
    """One line for each answer that was not what it should be."""


async def run_client(
    address: Address, known: Sequence[Known], tally: Tally, rng: random.Random, until_s: float, max_tokens: int
) -> None:
    """Send one request after another until the time is over; always ends with a request that was begun."""
    loop = asyncio.get_running_loop()
    while loop.time() < until_s:
        dice = rng.random()
        if dice < _MALFORMED_FRAC:
            await _malformed(address, tally, rng)
        elif dice < _MALFORMED_FRAC + _DISCONNECTED_FRAC:
            await _disconnected(address, rng.choice(known), tally, rng, max_tokens)
        else:
            await _completed(address, rng.choice(known), tally, rng, max_tokens)


async def _completed(address: Address, known: Known, tally: Tally, rng: random.Random, max_tokens: int) -> None:
    num_tokens = rng.randint(1, max_tokens)
    is_stream = rng.random() < 0.7
    body = json.dumps(completion(known.prompt, num_tokens, stream=is_stream)).encode()
    async with asking(address, "POST", "/v1/completions", body) as answer:
        if answer.status == 503:
            tally.counts["turned_away"] += 1
            await asyncio.sleep(1.0)
            return
        if answer.status != 200:
            tally.wrong.append(f"status {answer.status}: {(await answer.body())[:200]!r}")
            return
        token_ids: list[int] = []
        if is_stream:
            async for event in answer.events():
                token_ids += event["choices"][0].get("token_ids", ()) if "choices" in event else ()
        else:
            token_ids = json.loads(await answer.body())["choices"][0]["token_ids"]
    tally.counts["completed"] += 1
    tally.num_output_tokens += len(token_ids)
    expected = known.output[:num_tokens]
    if tuple(token_ids) != expected:
        place = next((i for i, pair in enumerate(zip(token_ids, expected, strict=False)) if pair[0] != pair[1]), None)
        tally.wrong.append(
            f"prompt of {len(known.prompt)} tokens, {len(token_ids)} of {num_tokens} tokens, "
            f"first difference at {place}"
        )


async def _disconnected(address: Address, known: Known, tally: Tally, rng: random.Random, max_tokens: int) -> None:
    is_stream = rng.random() < 0.7
    body = json.dumps(completion(known.prompt, max_tokens, stream=is_stream)).encode()
    num_events = rng.randint(0, _LEAVE_WITHIN_EVENTS)
    try:
        async with asyncio.timeout(rng.random() * _LEAVE_WITHIN_S):
            async with asking(address, "POST", "/v1/completions", body) as answer:
                if not is_stream or answer.status != 200:
                    await answer.body()
                else:
                    async for _ in answer.events():
                        num_events -= 1
                        if num_events <= 0:
                            break
    except TimeoutError:
        pass
    tally.counts["disconnected"] += 1


async def _malformed(address: Address, tally: Tally, rng: random.Random) -> None:
    body = rng.choice(_MALFORMED)
    async with asking(address, "POST", "/v1/completions", body) as answer:
        content = await answer.body()
        if not 400 <= answer.status < 500 or "error" not in json.loads(content):
            tally.wrong.append(f"malformed {body[:60]!r}: status {answer.status}")
    tally.counts["malformed"] += 1
