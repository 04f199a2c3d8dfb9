"""What speculation gave: tokens a step, acceptance length, and the time of a step, each with its source.

Identities used, with n output tokens of which the first comes from the prefill and belongs to no step:
every decode step commits its accepted draft tokens and one bonus token, so steps = (n - 1) - accepted.
The last step may be cut short by the token limit. Some engines (vLLM) count the drafts beyond the cut as accepted, so
this may be short by up to one step's worth of drafts: no fewer than the engine's verify steps are taken, and where
these do not account for every token, and the arrivals of the stream show a number of steps within what the counts
allow, that number.

A millisecond a token is a millisecond a step only without a drafter; neither is ever printed as the other.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.metrics.step import steps_of
from deepdraft.metrics.timing import tpot_s
from deepdraft.metrics.tokens import output_tokens
from deepdraft.records import Acceptance, RequestTrace, Ternary

LIFETIME_AVERAGE = "an average over the server's life, not of this request"
"""In a source: the figure covers more than what was measured."""
STEP_FROM_TOKENS = "ms/token x tokens/step"
"""The source of a step time that was computed; where its tokens a step come from is said beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sourced:
    """A figure and where it comes from."""

    value: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """An engine's counts, brought to one form."""

    num_verify_steps: int | None
    num_accepted: int | None


def step_counts(acceptance: Acceptance) -> StepCounts:
    """Verify steps and accepted draft tokens from whichever form the engine gave: totals, a histogram of accepted
    lengths, a list with one entry a step, or counts at each depth."""
    num_steps, num_accepted = acceptance.num_steps, acceptance.num_accepted_tokens
    by_step, histogram = acceptance.accepted_len_by_step, acceptance.accepted_len_histogram
    if by_step is not None:
        num_steps = len(by_step) if num_steps is None else num_steps
        num_accepted = sum(by_step) if num_accepted is None else num_accepted
    if histogram is not None:
        num_steps = sum(histogram) if num_steps is None else num_steps
        if num_accepted is None:
            num_accepted = sum(length * count for length, count in enumerate(histogram))
    if num_accepted is None and acceptance.accepted_at_depth is not None:
        num_accepted = sum(acceptance.accepted_at_depth)
    return StepCounts(num_verify_steps=num_steps, num_accepted=num_accepted)


def acceptance_len(acceptance: Acceptance, num_output_tokens: int | None = None) -> Sourced | None:
    """Committed tokens a verify step, bonus included; never below 1.

    Best first: 1 + accepted / verify steps; accepted drafts alone with the output tokens of the request (then steps
    without a draft count as verify steps of one token); verify steps alone with the output tokens; the engine's mean.
    """
    counts = step_counts(acceptance)
    steps, accepted = counts.num_verify_steps, counts.num_accepted
    source = _named(acceptance)
    if steps and accepted is not None:
        return Sourced(value=1 + accepted / steps, source=source)
    num_decoded = num_output_tokens - 1 if num_output_tokens is not None else None
    if accepted is not None and steps is None and num_decoded is not None and num_decoded > accepted:
        value = num_decoded / (num_decoded - accepted)
        return Sourced(value=value, source=f"{source}; steps = output tokens - 1 - accepted")
    if steps and num_decoded is not None and num_decoded >= steps:
        return Sourced(value=num_decoded / steps, source=f"{source}; tokens after the first / verify steps")
    if acceptance.stated_acceptance_len is not None and acceptance.stated_acceptance_len >= 1:
        return Sourced(value=acceptance.stated_acceptance_len, source=f"{source}; the engine's own mean")
    return None


def tokens_per_step(acceptance: Acceptance, num_output_tokens: int, num_requests: int = 1) -> Sourced | None:
    """Tokens a decode step over all decode steps, those without a draft included (an n-gram drafter skips many).

    `num_output_tokens` and the counts may cover several requests; each has one token from its prefill.
    None where the engine gives only a mean, since that says nothing of the steps without a draft.
    """
    counts = step_counts(acceptance)
    num_decoded = num_output_tokens - num_requests
    if num_decoded <= 0 or acceptance.is_lifetime_average:
        return None
    if counts.num_accepted is not None:
        num_steps = max(num_decoded - counts.num_accepted, counts.num_verify_steps or 0)
    else:
        num_steps = counts.num_verify_steps or 0
    if not 0 < num_steps <= num_decoded:
        return None
    return Sourced(value=num_decoded / num_steps, source=_named(acceptance))


def acceptance_rate_by_depth(acceptance: Acceptance) -> tuple[float, ...] | None:
    """The share of verify steps that accepted the draft at depth 1, 2, ...; None without the counts for it.

    It stays meaningful for trees, where accepted / drafted does not.
    """
    counts = step_counts(acceptance)
    at_depth = acceptance.accepted_at_depth
    if at_depth is None:
        lengths = acceptance.accepted_len_histogram
        if lengths is None and acceptance.accepted_len_by_step is not None:
            by_step = acceptance.accepted_len_by_step
            lengths = tuple(by_step.count(length) for length in range(max(by_step, default=0) + 1))
        if lengths is None:
            return None
        at_depth = tuple(sum(lengths[depth:]) for depth in range(1, len(lengths)))
    if not counts.num_verify_steps:
        return None
    return tuple(count / counts.num_verify_steps for count in at_depth)


def request_tokens_per_step(
    trace: RequestTrace, acceptance: Acceptance | None, speculation: Ternary = "unknown"
) -> Sourced | None:
    """Tokens a decode step of one request: told by the server, else 1 where it is known not to speculate, else from
    bursts of arrivals; None when none of these can tell."""
    num_output_tokens = output_tokens(trace)
    if acceptance is not None and num_output_tokens is not None:
        told = _told_tokens_per_step(trace, acceptance, num_output_tokens)
        if told is not None:
            return told
    if speculation == "no":
        return Sourced(value=1.0, source="no drafter is active")
    steps = steps_of(trace)
    if steps is not None and steps.tokens_per_step is not None:
        return Sourced(value=steps.tokens_per_step, source=_bursts_named(steps.doubt))
    return None


def step_s(
    trace: RequestTrace, acceptance: Acceptance | None, speculation: Ternary = "unknown", tpot: float | None = None
) -> Sourced | None:
    """Seconds of one decode or verify step: time a token x tokens a step when the server tells, the time between
    bursts else, and time a token itself only where no drafter is active. None when none of these can tell.

    `tpot` replaces the trace's own, for methods that measure it otherwise.
    """
    per_token_s = tpot if tpot is not None else tpot_s(trace)
    num_output_tokens = output_tokens(trace)
    if per_token_s is not None and acceptance is not None and num_output_tokens is not None:
        told = _told_tokens_per_step(trace, acceptance, num_output_tokens)
        if told is not None:
            return Sourced(value=per_token_s * told.value, source=STEP_FROM_TOKENS)
    if speculation == "no":
        if per_token_s is None:
            return None
        return Sourced(value=per_token_s, source="no drafter is active: a step is a token")
    steps = steps_of(trace)
    if steps is not None:
        return Sourced(value=steps.step_s, source=_bursts_named(steps.doubt))
    return None


def _told_tokens_per_step(trace: RequestTrace, acceptance: Acceptance, num_output_tokens: int) -> Sourced | None:
    """What the server's counts say, made exact by the arrivals where the counts leave room for a cut last step."""
    told = tokens_per_step(acceptance, num_output_tokens)
    room = _cut_len_at_most(acceptance)
    if told is None or not room:
        return told
    num_decoded = num_output_tokens - 1
    counts = step_counts(acceptance)
    if (counts.num_verify_steps or 0) + (counts.num_accepted or 0) == num_decoded:
        return (
            told  # every token is accounted for: nothing was counted beyond the end, and no step went without a draft
        )
    fewest = round(num_decoded / told.value)
    arrivals = steps_of(trace)
    if arrivals is not None and arrivals.is_exact and fewest <= arrivals.num_steps <= fewest + room:
        if arrivals.num_steps == fewest:
            return told
        source = f"{told.source}; steps from arrivals, since drafts beyond the end count as accepted"
        return Sourced(value=num_decoded / arrivals.num_steps, source=source)
    return told


def _cut_len_at_most(acceptance: Acceptance) -> int:
    """Drafts that the last step can have accepted beyond the end, as far as the counts tell: 0 when they don't."""
    if acceptance.accepted_len_by_step:
        return acceptance.accepted_len_by_step[-1]
    if acceptance.accepted_len_histogram is not None:
        return max((length for length, count in enumerate(acceptance.accepted_len_histogram) if count), default=0)
    if acceptance.accepted_at_depth is not None:
        return sum(1 for count in acceptance.accepted_at_depth if count)
    return 0


def _named(acceptance: Acceptance) -> str:
    parts = [acceptance.source]
    if acceptance.is_lifetime_average:
        parts.append(LIFETIME_AVERAGE)
    if acceptance.doubt:
        parts.append(acceptance.doubt)
    return "; ".join(parts)


def _bursts_named(doubt: str | None) -> str:
    return "bursts of arrivals" + (f" ({doubt})" if doubt else "")
