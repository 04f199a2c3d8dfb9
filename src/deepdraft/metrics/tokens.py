"""How many tokens an answer has, and how many each of its events holds. An event is never taken for a token.

The total comes from the server (usage), else from what its events stated, else from a tokenizer, else it is unknown.
The split over events comes from, best first:

1. the server's own count for each event (continuous usage, token ids, logprobs);
2. total = number of events: one token each. When the answer ended by itself (finish "stop") and the total is one
   more, the end token is the one without text;
3. a tokenizer's counts, scaled so that they sum to the server's total (a tokenizer that splits words three times
   finer then still gives the right split);
4. the characters of each event, scaled likewise.

3 and 4 are estimates (`is_exact` False), with bounds for the figures that rest on them in `timing.tpot_bounds_s`.
When the total is below the number of events (a detokenizer that sends parts of characters), events may hold 0 tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from deepdraft.records import RequestTrace
from deepdraft.records.trace import TOKEN_KINDS

MISMATCH_FRAC = 0.02
"""Two counts of the same tokens that differ by more than this are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTokens:
    """Tokens of a trace's token-carrying events."""

    counts: tuple[int, ...] | None
    """Tokens in each token-carrying event; None when nothing says."""
    source: str | None
    """How the counts were found, in words."""
    is_exact: bool
    """True when the server stated them, or when they follow from its total without estimating."""
    total: int | None
    """Output tokens, reasoning and tool calls included, also those that came without text."""
    total_source: str | None
    is_total_by_server: bool
    """Whether the total is the server's own statement rather than a tokenizer's count."""
    mismatch: str | None = None
    """Two sources that disagree by more than 2 %, each with its count; None when they agree."""

    @property
    def num_unplaced(self) -> int:
        """Tokens that belong to no token-carrying event, as the end token does."""
        if self.total is None or self.counts is None:
            return 0
        return max(self.total - sum(self.counts), 0)


def num_token_events(trace: RequestTrace) -> int:
    """Events that carry answer text, reasoning or tool-call text."""
    return sum(1 for kind in trace.events.kinds if kind in TOKEN_KINDS)


def output_tokens(trace: RequestTrace) -> int | None:
    """Tokens of the answer: the server's count, else what its events stated, else a tokenizer's; None if unknown."""
    return event_tokens(trace).total


def event_tokens(trace: RequestTrace) -> EventTokens:
    """Tokens of each token-carrying event, with the source of the counts and of the total."""
    num_events = num_token_events(trace)
    total, total_source, is_total_by_server, mismatch = _total(trace, num_events)
    counts, source, is_exact = _counts(trace, num_events, total)
    if counts is not None and total is not None and is_exact and _differ(sum(counts), total):
        # One of the server's two statements is wrong; which one is unknown, so neither is called exact.
        is_exact = False
        mismatch = f"{total_source} says {total:,} tokens, {source} {sum(counts):,}"
    return EventTokens(
        counts=counts,
        source=source,
        is_exact=is_exact,
        total=total,
        total_source=total_source,
        is_total_by_server=is_total_by_server,
        mismatch=mismatch,
    )


def _total(trace: RequestTrace, num_events: int) -> tuple[int | None, str | None, bool, str | None]:
    events = trace.events
    tokenizer_total = sum(events.tokenizer_tokens) if events.tokenizer_tokens is not None else None
    usage_total = trace.usage.completion_tokens if trace.usage is not None else None
    if usage_total is not None and (usage_total > 0 or not num_events):  # 0 beside text is "not counted"
        mismatch = None
        if tokenizer_total is not None and _differ(tokenizer_total, usage_total):
            tokenizer = events.tokenizer_source or "the tokenizer"
            mismatch = f"usage says {usage_total:,} tokens, {tokenizer} counts {tokenizer_total:,}; usage is used"
        return usage_total, "usage", True, mismatch
    if events.num_tokens is not None and len(events.num_tokens) == num_events:
        return sum(events.num_tokens), events.num_tokens_source or "stated with the events", True, None
    if tokenizer_total is not None:
        return tokenizer_total, f"tokenizer {events.tokenizer_source or ''}".strip(), False, None
    if not num_events and trace.saw_done:
        return 0, "no text in a whole stream", True, None
    return None, None, False, None


def _counts(
    trace: RequestTrace, num_events: int, total: int | None
) -> tuple[tuple[int, ...] | None, str | None, bool]:
    events = trace.events
    if not num_events:
        return (), "no token events", True
    if events.num_tokens is not None and len(events.num_tokens) == num_events:
        return events.num_tokens, events.num_tokens_source or "stated with the events", True
    if total is None:
        return None, None, False
    if total == num_events:
        return (1,) * total, "one token an event", True
    if total == num_events + 1 and trace.finish_reason == "stop":
        return (1,) * num_events, "one token an event, and the end token", True
    if events.tokenizer_tokens is not None and len(events.tokenizer_tokens) == num_events:
        name = f"tokenizer {events.tokenizer_source or ''}".strip()
        counted = sum(events.tokenizer_tokens)
        if counted == total:
            return events.tokenizer_tokens, name, False
        if counted:
            return _scaled(events.tokenizer_tokens, total), f"{name}, scaled to {total:,}", False
    if len(events.num_chars) == num_events and sum(events.num_chars) > 0:
        return _scaled(events.num_chars, total), f"characters, scaled to {total:,} tokens", False
    return _scaled((1,) * num_events, total), f"spread evenly over {num_events:,} events", False


def _differ(count: int, total: int) -> bool:
    # A difference of one token is the end token, or half a character at a seam: no disagreement.
    return abs(count - total) > max(MISMATCH_FRAC * total, 1)


def _scaled(weights: Sequence[int], total: int) -> tuple[int, ...]:
    """Whole numbers in proportion to the weights that sum to `total`; each at least 1 if there is enough for all."""
    shares = [weight * total / sum(weights) for weight in weights]
    floor = 1 if total >= len(weights) else 0
    excess = [max(share - floor, 0.0) for share in shares]
    rest = total - floor * len(weights)
    whole = sum(excess)
    if not whole:  # nothing above the floor: then there is nothing to share out either, up to rounding
        excess, whole = [1.0] * len(weights), float(len(weights))
    # Rounding the running sum, not each share, keeps every boundary between events within half a token.
    marks = [round(rest * running / whole) for running in accumulate(excess)]
    marks[-1] = rest
    return tuple(floor + mark - before for before, mark in zip([0, *marks[:-1]], marks, strict=True))
