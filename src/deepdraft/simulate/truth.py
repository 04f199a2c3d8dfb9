"""What really happened to each request: the records behind GET /_truth, and how to read them.

Times are time.monotonic() of the server's machine, in seconds; on Linux that clock is one for all processes, so that
a client on the same machine can compare its own stamps directly. Write times are taken just before the bytes are
given to the socket, step times are the schedule the writes followed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import msgspec

TokenKind = Literal["reasoning", "content", "tool"]


@dataclass(frozen=True, slots=True)
class Write:
    """One write to the socket that completed at least one token-carrying event."""

    time_s: float
    num_tokens: int
    """Output tokens sent when it was done, from the start of the answer."""
    kinds: tuple[TokenKind, ...]
    """Kinds of the tokens in it, each once, in order."""
    num_events: int


@dataclass(frozen=True, slots=True)
class Step:
    """One decode or verify step. `context_len` is the tokens in the KV cache before it."""

    start_s: float
    end_s: float
    context_len: int
    draft_len: int
    accepted_len: int
    committed_len: int


@dataclass(slots=True, kw_only=True)
class RequestTruth:
    """One request, finished or failed. None: it never came to that."""

    request_id: str
    """Also sent to the client, as the header x-request-id."""
    ordinal: int
    """Among all generation requests since the server started, from 1."""
    route: str
    is_stream: bool
    received_s: float
    """The request was there completely."""
    admitted_s: float | None = None
    """It left the queue; prefill began."""
    prefill_end_s: float | None = None
    prompt_len: int | None = None
    cached_len: int | None = None
    max_tokens: int | None = None
    writes: list[Write] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    output_len: int = 0
    """Tokens made; the last write may tell of fewer, when the stream was cut."""
    finish_reason: str | None = None
    status: int | None = None
    """HTTP status; None when no answer was sent."""
    fault: str | None = None
    """Kind of the fault that struck."""
    is_cancelled: bool = False
    """The client went away first."""
    num_connections: int = 0
    """Connections open when it was received, its own included."""
    num_running_before: int = 0
    """Requests running or queued when it was received, itself not included."""
    end_s: float | None = None
    """Just before the last byte was given to the socket."""


def truths_json(truths: list[RequestTruth]) -> bytes:
    """The list as JSON, as GET /_truth answers it."""
    return msgspec.json.encode(truths)


def truths_from_json(text: bytes) -> list[RequestTruth]:
    """Read what GET /_truth answers. Raises msgspec.ValidationError for anything else."""
    return msgspec.json.decode(text, type=list[RequestTruth])


def ttft_s(truth: RequestTruth) -> float | None:
    """From the request's complete receipt to the first token-carrying write."""
    return truth.writes[0].time_s - truth.received_s if truth.writes else None


def tpot_s(truth: RequestTruth) -> float | None:
    """Seconds a token between first and last token-carrying write, the first one's tokens not counted."""
    if len(truth.writes) < 2:
        return None
    first, last = truth.writes[0], truth.writes[-1]
    return (last.time_s - first.time_s) / (last.num_tokens - first.num_tokens)


def acceptance_len(truth: RequestTruth) -> float | None:
    """Mean committed tokens a step."""
    if not truth.steps:
        return None
    return sum(step.committed_len for step in truth.steps) / len(truth.steps)
