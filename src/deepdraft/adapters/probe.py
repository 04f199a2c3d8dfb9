"""Settles an adapter: tiny requests that find which routes answer and which optional fields the server takes.

A field that a refusal names is dropped and the request is sent again; when a refusal names none, all optional fields
are dropped but the one that asks for usage, then that one too. What was dropped is recorded as a doubt, in the
server's own words.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from deepdraft.adapters.body import Wish
from deepdraft.adapters.field import INCLUDE_USAGE, refused_fields
from deepdraft.errors import ServerError, Unauthorized
from deepdraft.records import Failure, RequestTrace

if TYPE_CHECKING:
    from deepdraft.adapters.adapter import Adapter

PROBE_LEN = 4
"""Tokens a probe asks for: enough to see several events."""
_MAX_ROUNDS = 12
ROUTES = {"chat": "/v1/chat/completions", "completions": "/v1/completions", "native": "/generate"}
"""Paths of the generation routes."""
_CONSONANTS, _VOWELS = "bcdfghjklmnprstvwz", "aeiou"
_MISSING = frozenset({404, 405, 501})
_REFUSED = frozenset({400, 422})


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A tiny request and what came back."""

    route: str
    fields: Mapping[str, Any]
    max_tokens: int
    trace: RequestTrace
    failure: Failure | None


def random_words(rng: random.Random, num_words: int = 6) -> str:
    """Words that no other prompt begins with."""

    def word() -> str:
        return "".join(rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(2, 4)))

    return " ".join(word() for _ in range(num_words)) + ". Say one word:"


async def settled(adapter: Adapter, routes: Sequence[str], limit_s: float) -> None:
    """Try the routes; the first that answers is the one used, the others are noted.

    Raises ServerError with the server's words when none answers.
    """
    failed: list[ServerError] = []
    for route in routes:
        try:
            probe = await _settle_route(adapter, route, limit_s)
        except Unauthorized:
            raise
        except ServerError as error:
            failed.append(error)
            continue
        adapter.took(route, probe.fields)
        if adapter.endpoint == route:
            adapter.observe(probe)
        if route == "completions":
            await _settle_token_ids(adapter, probe.fields, limit_s)
        elif route == "native":
            adapter.learn(token_id_prompts="yes")
    if not adapter.capabilities.endpoints:
        if len(failed) == 1:
            raise failed[0]
        raise ServerError(
            "no generation endpoint answers: " + "; ".join(error.message for error in failed),
            hint="check the URL (the part before /v1), --model and --endpoint",
        )
    adapter.doubt(*(error.message for error in failed))


async def _settle_route(adapter: Adapter, route: str, limit_s: float) -> Probe:
    fields = adapter.fields_to_try(route)
    fell_back = False
    for _ in range(_MAX_ROUNDS):
        probe = await _send(adapter, route, fields, adapter.probe_prompt(), limit_s)
        failure = probe.failure
        if failure is None or _ended_at_once(probe):
            return probe
        words = failure.message
        if failure.http_status in (401, 403):
            raise Unauthorized(words, hint="give the key with --api-key")
        if failure.http_status in _MISSING and "model" not in words.lower():
            raise ServerError(f"there is no {ROUTES[route]}: {words}", hint="check the URL (the part before /v1)")
        if _lacks_template(words):
            raise ServerError(f"the chat endpoint needs a chat template, which the model lacks: {words}")
        if failure.http_status not in _REFUSED:
            hint = "check --model" if failure.http_status in _MISSING else None
            raise ServerError(f"a tiny request to {ROUTES[route]} failed: {words}", hint=hint)
        if "max_completion_tokens" in words and adapter.rename_max_tokens():
            continue
        named = refused_fields(words, list(fields))
        if named:
            replacement = adapter.replacement_for(named)
            fields = {path: value for path, value in fields.items() if path not in named} | replacement
            adapter.doubt(f"the server refuses {', '.join(named)}: {words}")
        elif not fields:
            raise ServerError(f"a tiny request to {ROUTES[route]} was refused: {words}")
        else:
            kept = {} if fell_back else {path: value for path, value in fields.items() if path == INCLUDE_USAGE}
            fell_back = True
            dropped = [path for path in fields if path not in kept]
            if dropped:
                adapter.doubt(f"sent without {', '.join(dropped)}, since the server refused the request: {words}")
            fields = kept
    raise ServerError(f"{ROUTES[route]} refused every form of a tiny request")


async def _settle_token_ids(adapter: Adapter, fields: Mapping[str, Any], limit_s: float) -> None:
    """Whether the completions route takes a prompt of token ids and counts it as such."""
    ids = await adapter.tokenize(adapter.probe_prompt()) or adapter.random_ids()
    probe = await _send(adapter, "completions", fields, ids, limit_s)
    usage = probe.trace.usage
    if probe.failure is not None and not _ended_at_once(probe):
        adapter.learn(token_id_prompts="no")
    elif usage is not None and usage.prompt_tokens == len(ids):
        adapter.learn(token_id_prompts="yes")
    elif usage is not None and usage.prompt_tokens is not None:
        adapter.learn(token_id_prompts="no")
        adapter.doubt(f"a prompt of {len(ids)} token ids was counted as {usage.prompt_tokens} tokens")


async def _send(
    adapter: Adapter, route: str, fields: Mapping[str, Any], prompt: str | list[int], limit_s: float
) -> Probe:
    wish = Wish(prompt=prompt, max_tokens=PROBE_LEN, cache_salt=adapter.probe_prompt()[:16])
    body = adapter.body_of(route, fields, wish)
    adapter.num_probe_requests += 1
    trace, failure = await adapter.server.generate(ROUTES[route], msgspec.json.encode(body), limit_s=limit_s)
    return Probe(route=route, fields=fields, max_tokens=PROBE_LEN, trace=trace, failure=failure)


def _ended_at_once(probe: Probe) -> bool:
    """The model had nothing to say: the route works all the same."""
    trace = probe.trace
    ended = trace.saw_done or trace.finish_reason is not None
    return ended and probe.failure is not None and probe.failure.name == "EmptyStream"


def _lacks_template(words: str) -> bool:
    words = words.lower()
    return "chat template" in words or "chat_template" in words
