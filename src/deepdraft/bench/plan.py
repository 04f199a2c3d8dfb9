"""Which trials a sweep runs, in which order. Pure: the same spec always gives the same list, so a sweep can resume.

A trial is one repeat of one point (context length and concurrency). Repeats are the outer loop and every other round
runs backwards: a steady drift of the server then shows as a trend over a point's repeats, and its effect on the
comparison between points cancels to first order.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from deepdraft.errors import UsageError
from deepdraft.records import Capabilities, Refusal, SweepSpec

DECODE_LEN = 64
"""Tokens generated a request by the streaming method when nothing else is asked."""
TWO_POINT_LEN = 16
TWO_POINT_LEN_LONG = 8
TWO_POINT_LONG_CONTEXT = 100_000
"""From this context on the two-point method asks for 8 tokens beyond the first instead of 16: there each token
costs most and decode time dwarfs the jitter it is measured against."""


PointKey = tuple[int, int]
"""A point: context length and concurrency."""


class PointRefused(Exception):
    """This point can't be sent as it was asked for; the message says why. Caught by the sweep, which goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTrial:
    """One repeat of one point."""

    trial_id: str
    context_len: int
    concurrency: int
    repeat_index: int
    is_warmup: bool = False

    @property
    def point(self) -> PointKey:
        """Which point it is a repeat of."""
        return self.context_len, self.concurrency


def decode_len(spec: SweepSpec, context_len: int) -> int:
    """Tokens to generate at this point; for the two-point method: tokens beyond the first."""
    if spec.decode_len is not None:
        return spec.decode_len
    if spec.method == "two-point":
        return TWO_POINT_LEN_LONG if context_len >= TWO_POINT_LONG_CONTEXT else TWO_POINT_LEN
    return DECODE_LEN


def planned_trials(
    spec: SweepSpec, refused: Collection[PointKey] = (), *, num_earlier_warmups: int = 0
) -> tuple[PlannedTrial, ...]:
    """All trials in the order they run, warm-ups first (at the smallest point that is not refused).

    num_earlier_warmups: warm-ups that a resumed file holds; the new ones are numbered after them.
    Raises UsageError when the spec names no point.
    """
    asked = [(length, concurrency) for length in spec.context_lens for concurrency in spec.concurrencies]
    if not asked:
        raise UsageError("nothing to measure", hint="give --context-len, for example --context-len 1k,16k,128k")
    points = [point for point in asked if point not in refused]
    if not points:
        return ()
    smallest = min(points)
    trials = [
        PlannedTrial(
            trial_id=f"warmup-{index}",
            context_len=smallest[0],
            concurrency=smallest[1],
            repeat_index=index,
            is_warmup=True,
        )
        for index in range(num_earlier_warmups, num_earlier_warmups + spec.num_warmups)
    ]
    for repeat_index in range(spec.num_repeats):
        round_points = points if repeat_index % 2 == 0 else points[::-1]
        trials += [
            PlannedTrial(
                trial_id=f"len{length}-c{concurrency}-r{repeat_index}",
                context_len=length,
                concurrency=concurrency,
                repeat_index=repeat_index,
            )
            for length, concurrency in round_points
        ]
    return tuple(trials)


def num_trial_requests(spec: SweepSpec, concurrency: int) -> int:
    """Requests of one trial (a two-point pair counts as one)."""
    return max(spec.num_requests or concurrency, concurrency)


def refusals(spec: SweepSpec, capabilities: Capabilities) -> tuple[Refusal, ...]:
    """The points that this server can't run, with the reason; they are never sent."""
    refused = []
    for context_len in spec.context_lens:
        for concurrency in spec.concurrencies:
            reason = _reason(spec, capabilities, context_len, concurrency)
            if reason:
                refused.append(Refusal(context_len=context_len, concurrency=concurrency, reason=reason))
    return tuple(refused)


def _reason(spec: SweepSpec, capabilities: Capabilities, context_len: int, concurrency: int) -> str | None:
    output_len = decode_len(spec, context_len) + (1 if spec.method == "two-point" else 0)
    total_len = context_len + output_len
    asked = f"{context_len:,} prompt + {output_len:,} output tokens"
    context_limit, pool = capabilities.max_context_len, capabilities.kv_pool_tokens
    if context_limit is not None and total_len > context_limit:
        return f"{asked} exceed the server's context limit of {context_limit:,}"
    if capabilities.max_prompt_len is not None and context_len > capabilities.max_prompt_len:
        return f"{context_len:,} prompt tokens exceed the {capabilities.max_prompt_len:,} this server accepts"
    if pool is not None and total_len > pool:
        return f"{asked} exceed the KV pool of {pool:,} tokens"
    if pool is not None and total_len * concurrency > pool:
        return (
            f"{concurrency} requests of {total_len:,} tokens exceed the KV pool of {pool:,}: "
            "they would queue or be preempted, not run together"
        )
    return None
