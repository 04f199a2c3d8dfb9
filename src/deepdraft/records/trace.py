"""What one streamed request left behind: the only raw data of a measurement.

Times are seconds since the request's first byte was handed to the kernel ("sent"), on a monotonic clock. An event's
time is that of the socket read that completed it, taken before anything was parsed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Kinds of events, one letter each in EventLog.kinds.
TEXT = "t"  # answer text
REASONING = "r"  # reasoning text
TOOL_CALL = "c"  # the name or the arguments of a tool call
EMPTY = "o"  # a choice without text: role only, "", null
PROGRESS = "p"  # prompt progress
USAGE = "u"  # usage or other figures, no choice
FINISH = "f"  # a finish_reason without text
COMMENT = "k"  # an SSE comment (ping)
DONE = "d"  # [DONE]
ERROR = "e"  # an error object
OTHER = "x"  # anything else

TOKEN_KINDS = frozenset({TEXT, REASONING, TOOL_CALL})


@dataclass(frozen=True, slots=True, kw_only=True)
class EventLog:
    """The events of one stream in columns. `num_chars`, `num_tokens` and `tokenizer_tokens` have one entry for each
    event whose kind carries tokens (text, reasoning, tool call), in order."""

    gaps_us: tuple[int, ...] = ()
    """Microseconds since the event before (the first: since sent). 0 means: completed by the same socket read."""
    kinds: str = ""
    """One letter an event: t text, r reasoning, c tool call, o empty or role only, p progress, u usage, f finish,
    k comment, d [DONE], e error, x other."""
    num_chars: tuple[int, ...] = ()
    """Characters of generated text in each token-carrying event."""
    num_tokens: tuple[int, ...] | None = None
    """Tokens in each token-carrying event as the server stated them; None when it did not."""
    num_tokens_source: str | None = None
    """Where the server stated them: "continuous usage", "token ids", "logprobs", "meta_info", "timings"."""
    tokenizer_tokens: tuple[int, ...] | None = None
    """Tokens of each token-carrying event as a tokenizer counts the text cumulatively; None when not counted."""
    tokenizer_source: str | None = None
    """Which tokenizer that was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The server's own counts. A field that is missing was not said."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    reasoning_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTrace:
    """One request as the client saw it."""

    connect_s: float | None = None
    """Time to open the connection; spent before the clock starts."""
    written_s: float | None = None
    """Sent -> the last byte of the body handed to the kernel."""
    first_byte_s: float | None = None
    """Sent -> first byte of the answer."""
    end_s: float | None = None
    """Sent -> end of the answer, however it ended."""
    http_status: int | None = None
    events: EventLog = field(default_factory=EventLog)
    num_reads: int = 0
    num_bytes: int = 0
    finish_reason: str | None = None
    saw_done: bool = False
    usage: Usage | None = None
    server_fields: dict[str, Any] = field(default_factory=dict)
    """The engine's own figures for this request, verbatim (timings, metrics, meta_info, sglext ...)."""
    output_text: str | None = None
    """The answer's text, its head only when it is long."""
