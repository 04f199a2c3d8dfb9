"""Verify steps reconstructed from arrival times, for servers that do not tell them.

A burst of token events is taken for one step. Two things look the same from outside and are named as doubts: a server
that sends every k-th token only (its bursts all hold exactly k tokens), and a proxy that gathers several steps.
The first arrival belongs to no step: its token was sampled by the prefill.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.metrics.burst import MIN_STEPS, bursts_of
from deepdraft.metrics.event import token_times_s
from deepdraft.metrics.timing import arrival_tokens
from deepdraft.metrics.tokens import event_tokens
from deepdraft.records import RequestTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """Decode or verify steps as the arrivals show them."""

    num_steps: int
    num_tokens: int | None
    """Tokens the steps committed; None when nobody counted them."""
    step_s: float
    """Mean time of a step: first arrival to last arrival, divided by the steps between."""
    tokens_per_step: float | None
    tokens_by_step: tuple[int, ...] | None
    is_exact: bool
    """Whether the tokens of each step are known rather than estimated."""
    has_equal_bursts: bool = False
    """Whether all bursts hold the same number of tokens, more than one. The last may hold fewer, and where two were
    joined because one came late, twice as many."""
    doubt: str | None = None
    """Why bursts may not be steps; None when nothing speaks against it."""


def steps_of(trace: RequestTrace) -> Steps | None:
    """The steps of a request, or None when arrival times can't tell them (`why_no_steps` says why)."""
    bursts = bursts_of(token_times_s(trace))
    num_steps = len(bursts.ends_s) - 1
    if bursts.why_not is not None or num_steps < MIN_STEPS or bursts.ends_s[-1] <= bursts.ends_s[0]:
        return None
    counted = event_tokens(trace)
    tokens = arrival_tokens(bursts, counted.counts)[1:] if counted.counts is not None else None
    return Steps(
        num_steps=num_steps,
        num_tokens=sum(tokens) if tokens is not None else None,
        step_s=(bursts.ends_s[-1] - bursts.ends_s[0]) / num_steps,
        tokens_per_step=sum(tokens) / num_steps if tokens is not None else None,
        tokens_by_step=tokens,
        is_exact=counted.is_exact,
        has_equal_bursts=tokens is not None and _common_size(tokens) is not None,
        doubt=_doubt(tokens),
    )


def why_no_steps(trace: RequestTrace) -> str | None:
    """Why `steps_of` gives nothing; None when it gives steps."""
    times_s = token_times_s(trace)
    if not times_s:
        return "no token arrived"
    bursts = bursts_of(times_s)
    if bursts.why_not is None and len(bursts.ends_s) - 1 < MIN_STEPS:
        return f"only {len(bursts.ends_s) - 1} steps"
    if bursts.why_not is None and bursts.ends_s[-1] <= bursts.ends_s[0]:
        return "the clock ran backwards"
    return bursts.why_not


def _common_size(tokens: tuple[int, ...]) -> int | None:
    """The number of tokens, above one, that most bursts hold and the others hold a multiple of; None without it."""
    whole = tokens[:-1]  # the last step may be cut short by the token limit
    size = min(whole, default=0)
    if size <= 1 or any(num_tokens % size for num_tokens in whole):
        return None
    return size if 2 * whole.count(size) > len(whole) else None


def _doubt(tokens: tuple[int, ...] | None) -> str | None:
    if tokens is None:
        return "nobody counted the tokens"
    each = _common_size(tokens)
    if each is not None:
        return f"every burst holds exactly {each} tokens, as from a server that sends each {each}th token only"
    return None
