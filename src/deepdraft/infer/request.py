"""What was asked of the engine, and what it hands back. How far a request is inside the engine is `scheduler`'s."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are chosen and when to stop."""

    max_tokens: int
    min_tokens: int = 0
    """No end by EOS or a stop string before this many."""
    temperature: float = 1.0
    """0: greedy."""
    top_p: float = 1.0
    top_k: int | None = None
    seed: int | None = None
    """The random number of a token depends on the seed and the token's position alone, so a request gives the same
    output whatever shares its batch, and after preemption. None: a seed drawn for the request."""
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    num_logprobs: int | None = None
    """None: none; 0: of the chosen token; n: of the n likeliest as well."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One prompt, already in tokens."""

    request_id: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprob:
    """A chosen token and how likely the model held it (natural logarithm, before temperature and filters)."""

    token_id: int
    logprob: float
    alternatives: tuple[tuple[int, float], ...] = ()
    """(token id, logprob), likeliest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one step brought to one request."""

    request_id: str
    token_ids: tuple[int, ...]
    text: str
    """Whole characters only; what could still become a stop string is held back until it can't."""
    logprobs: tuple[TokenLogprob, ...]
    """As many as token_ids, or none."""
    finish_reason: str | None
    """None: more follows; stop (EOS or a stop string), length (max_tokens), or abort."""
    num_prompt_tokens: int
    num_cached_tokens: int
    """Prompt tokens that needed no prefill because the radix cache had them, at the request's first admission."""
    num_output_tokens: int
    """In all, this step included."""
