"""When the events of a trace came, and which of them carried tokens. Everything else in this room builds on it.

Times are seconds since sent, at the socket read that completed the event.
"""

from __future__ import annotations

from itertools import accumulate

from deepdraft.records import RequestTrace
from deepdraft.records.trace import COMMENT, TEXT, TOKEN_KINDS


def event_times_s(trace: RequestTrace) -> tuple[float, ...]:
    """The time of each event, of whatever kind."""
    return tuple(at_us / 1e6 for at_us in accumulate(trace.events.gaps_us))


def token_times_s(trace: RequestTrace) -> tuple[float, ...]:
    """The times of the events that carry tokens: answer text, reasoning or tool-call text."""
    events = trace.events
    return tuple(
        at_us / 1e6
        for at_us, kind in zip(accumulate(events.gaps_us), events.kinds, strict=False)
        if kind in TOKEN_KINDS
    )


def first_byte_s(trace: RequestTrace) -> float | None:
    """Sent -> first byte of the answer, headers included."""
    return trace.first_byte_s


def first_event_s(trace: RequestTrace) -> float | None:
    """Sent -> first event of any kind except comments, so a role-only chunk counts and a ping does not."""
    return next(
        (at_s for at_s, kind in zip(event_times_s(trace), trace.events.kinds, strict=False) if kind != COMMENT), None
    )


def ttft_s(trace: RequestTrace) -> float | None:
    """Sent -> first event that carries answer text, reasoning or tool-call text; None when none did.

    A chunk with only a role, an empty string, progress or a ping is not a token.
    """
    return next(iter(token_times_s(trace)), None)


def answer_ttft_s(trace: RequestTrace) -> float | None:
    """Sent -> first event with answer text: what a reader who never sees the reasoning waits for."""
    return next(
        (at_s for at_s, kind in zip(event_times_s(trace), trace.events.kinds, strict=False) if kind == TEXT), None
    )


def last_token_s(trace: RequestTrace) -> float | None:
    """Sent -> last event that carries tokens. What comes after it (usage, [DONE]) is not decoding."""
    times = token_times_s(trace)
    return times[-1] if times else None


def e2el_s(trace: RequestTrace) -> float | None:
    """Sent -> end of the stream."""
    return trace.end_s
