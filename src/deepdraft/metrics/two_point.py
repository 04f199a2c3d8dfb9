"""The two-point method: the same prompt with 1 and with 1 + M output tokens, cold both times.

TTFT is the first request's latency to its last token; time a token is what the second took longer, divided by the
tokens it has more. It needs no event times between tokens, but it costs two prefills, and it is worth nothing when
the second request skipped its prefill. `refusal` says when a pair must not be used.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.metrics.event import last_token_s
from deepdraft.metrics.prompt import cached_tokens, prompt_tokens
from deepdraft.metrics.tokens import output_tokens
from deepdraft.records import Measurement, PromptFacts

SHARED_LEN = 2
"""Tokens beyond the template that any two prompts may share by chance (BOS, a leading space)."""
UNKNOWN_TEMPLATE_LEN = 64
"""What a chat template may take where nobody knows its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The two requests of one two-point measurement."""

    first: Measurement
    second: Measurement


def allowed_cached_len(prompt: PromptFacts) -> int:
    """Cached tokens that are no hit on the prompt: the template every prompt shares, and a token or two by chance."""
    if prompt.overhead_len is not None:
        return prompt.overhead_len + SHARED_LEN
    return SHARED_LEN


def two_point_ttft_s(pair: Pair) -> float | None:
    """The first request's time to its last token event (its only one)."""
    return last_token_s(pair.first.trace)


def two_point_tpot_s(pair: Pair) -> float | None:
    """(last token of the second - last token of the first) / (tokens of the second - tokens of the first)."""
    first_s, second_s = last_token_s(pair.first.trace), last_token_s(pair.second.trace)
    first_len, second_len = output_tokens(pair.first.trace), output_tokens(pair.second.trace)
    if first_s is None or second_s is None or first_len is None or second_len is None or second_len <= first_len:
        return None
    return (second_s - first_s) / (second_len - first_len)


def refusal(pair: Pair) -> str | None:
    """Why the pair gives no figures, in words; None when it may be used.

    Cached tokens that a server does not report can't refuse a pair: the cold-prefix guard says "not verifiable" then.
    """
    for name, request in (("first", pair.first), ("second", pair.second)):
        if request.failure is not None:
            return f"the {name} request failed: {request.failure.message}"
    for name, request in (("second", pair.second), ("first", pair.first)):
        cached = cached_tokens(request.trace)
        if cached is not None and cached > _allowed(pair, request):
            total = prompt_tokens(request.trace)
            share = f" of {total:,}" if total is not None else ""
            return f"the {name} request was served from a cache: {cached:,}{share} prompt tokens"
    first_prompt, second_prompt = prompt_tokens(pair.first.trace), prompt_tokens(pair.second.trace)
    if first_prompt is not None and second_prompt is not None and first_prompt != second_prompt:
        return f"the two prompts differ: {first_prompt:,} and {second_prompt:,} tokens"
    return _output_refusal(pair)


def _allowed(pair: Pair, request: Measurement) -> int:
    if request.prompt.overhead_len is not None:
        return allowed_cached_len(request.prompt)
    first, second = cached_tokens(pair.first.trace), cached_tokens(pair.second.trace)
    # Without a known template: the same small hit for both is the template; a hit of the second alone is the prompt.
    return UNKNOWN_TEMPLATE_LEN if first == second else SHARED_LEN


def _output_refusal(pair: Pair) -> str | None:
    first_len, second_len = output_tokens(pair.first.trace), output_tokens(pair.second.trace)
    if first_len is None or second_len is None:
        return "nobody counted the output tokens"
    for name, request, length in (("first", pair.first, first_len), ("second", pair.second, second_len)):
        if length < request.max_tokens:
            return f"the {name} request ended early: {length:,} of {request.max_tokens:,} tokens"
    if second_len <= first_len:
        return f"the second request has no more tokens than the first ({second_len:,} and {first_len:,})"
    first_s, second_s = last_token_s(pair.first.trace), last_token_s(pair.second.trace)
    if first_s is None or second_s is None:
        return "no token arrived"
    if second_s <= first_s:
        return f"the second request was not longer than the first ({second_s:.3g} s and {first_s:.3g} s)"
    return None


def pairs_of(requests: tuple[Measurement, ...]) -> tuple[tuple[Pair, ...], tuple[Measurement, ...]]:
    """Pair up the first and second requests of one trial; returns the pairs and what stayed alone.

    A retry replaces the failed attempt before it. Requests pair by `request_index`, or in order where the two
    requests of a pair are numbered apart.
    """
    firsts = [request for request in _last_attempts(requests) if request.role == "first"]
    seconds = [request for request in _last_attempts(requests) if request.role == "second"]
    by_index = {request.request_index: request for request in seconds}
    if {request.request_index for request in firsts} & by_index.keys():
        matched = [(first, by_index.get(first.request_index)) for first in firsts]
    else:
        ordered: list[Measurement | None] = [*sorted(seconds, key=lambda request: request.request_index)]
        ordered += [None] * (len(firsts) - len(ordered))
        matched = list(zip(sorted(firsts, key=lambda request: request.request_index), ordered, strict=False))
    pairs = tuple(Pair(first=first, second=second) for first, second in matched if second is not None)
    paired = {id(request) for pair in pairs for request in (pair.first, pair.second)}
    alone = tuple(request for request in (*firsts, *seconds) if id(request) not in paired)
    return pairs, alone


def _last_attempts(requests: tuple[Measurement, ...]) -> tuple[Measurement, ...]:
    last: dict[tuple[str, int], Measurement] = {}
    for request in requests:
        last[request.role, request.request_index] = request
    return tuple(last.values())
