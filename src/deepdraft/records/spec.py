"""What a sweep was asked to do: settings read once at the edge, then frozen."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Time limits of one request, in seconds. None means: no such limit."""

    first_token_s: float | None = None
    """None: grows with the context (see bench.limits)."""
    stall_s: float | None = None
    """Between two signs of life of a started stream. None: grows with the context."""
    request_s: float | None = None
    """For the whole request; off by default, since a long prefill is not a fault."""
    server_wait_s: float = 20.0
    """How long to wait for a server that stopped answering in the middle of a sweep."""
    start_wait_s: float = 0.0
    """How long to wait at the start for a server that is not there yet."""
    num_retries: int = 1
    """Retries of a request that failed before its first token; every failure stays in the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSpec:
    """Everything that decides which requests are sent, and how."""

    url: str
    embedded_flags: tuple[str, ...] = ()
    """Further words of the command line of the embedded server, where `url` names one."""
    engine: str = "auto"
    endpoint: str = "auto"
    """auto, chat, completions, native"""
    model: str | None = None
    method: str = "streaming"
    """streaming or two-point"""
    context_lens: tuple[int, ...] = ()
    decode_len: int | None = None
    """Tokens to generate (two-point: tokens beyond the first). None: the method's default."""
    num_repeats: int = 3
    concurrencies: tuple[int, ...] = (1,)
    num_requests: int | None = None
    """Requests of one trial; None: as many as run at once."""
    arrival: str = "closed"
    """closed, constant:RATE or poisson:RATE (requests a second)"""
    text: str = "prose"
    prompt_form: str = "auto"
    """auto, text or ids"""
    needle_depth: float | None = None
    """Hide a fact at this fraction of the prompt and check the answer; None: no needle."""
    num_warmups: int = 1
    seed: int = 0
    temperature: float = 0.0
    tokenizer: str | None = None
    server_log: str | None = None
    device: str | None = None
    extra_body: dict[str, Any] = field(default_factory=dict)
    keep_cache: bool = False
    """Leave the server's prefix cache alone and send each context length's prompt again: to study hits."""
    limits: Limits = field(default_factory=Limits)
