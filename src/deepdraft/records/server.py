"""What a server says about itself while it works: counters, load, speculation."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerReading:
    """One look at a server's load and counters.

    `counters` holds monotone totals under our own names: prompt_tokens, cached_tokens, uncached_prompt_tokens (those
    computed), generation_tokens, num_requests, spec_drafts, spec_draft_tokens, spec_accepted_tokens,
    spec_accepted_at_<depth> (0-based), num_preemptions. A counter the server does not have is absent.
    """

    at_s: float
    """Seconds since the sweep began."""
    source: str
    num_running: int | None = None
    num_waiting: int | None = None
    counters: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)
    """Figures that may move either way, under our names: spec_acceptance_len (the engine's own mean since its last
    flush or start), spec_acceptance_len_recent (over its last reporting interval), kv_used_frac."""
    log_position_bytes: int | None = None
    """Length of the server's log at this look, where we were given one: a request's lines lie between two looks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepParts:
    """Where the decode and verify steps of one request spent their time: seconds summed over all of them, those
    without a draft included, by the server's clock. Of a step that several requests shared it is the request's share.
    """

    draft_s: float | None = None
    """The drafter's own passes."""
    build_s: float | None = None
    """From its proposals to trees."""
    verify_s: float | None = None
    """The target's passes, those over one plain token included."""
    compact_s: float | None = None
    """Moving accepted rows together in the KV cache."""
    other_s: float | None = None
    """The rest of the step: scheduling, sampling, committing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftDecisions:
    """Why a server that decides step by step whether to draft did so or not, for one request. Reasons are the
    server's words."""

    rounds_by_reason: dict[str, int] = field(default_factory=dict)
    """Verify steps."""
    plain_steps_by_reason: dict[str, int] = field(default_factory=dict)
    """Steps without a draft, or with one that wasn't verified."""
    break_even_len: float | None = None
    """Tokens a verify step would have had to commit to be as fast as plain steps, by the server's own costs: its mean
    over the steps at which it weighed that."""
    expected_len: float | None = None
    """And that the server expected one to commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Acceptance:
    """Speculation's counts for one request (or for one trial, where the source can't tell requests apart).

    Accepted tokens never include the bonus token. All fields are the server's; what follows is in
    `metrics.speculation`.
    """

    source: str
    """Where the counts come from, in words a reader can check."""
    num_steps: int | None = None
    """Verify steps."""
    num_draft_tokens: int | None = None
    num_accepted_tokens: int | None = None
    accepted_at_depth: tuple[int, ...] | None = None
    """How many steps accepted the draft at depth 1, 2, ..."""
    accepted_len_histogram: tuple[int, ...] | None = None
    """How many steps accepted 0, 1, 2, ... draft tokens."""
    accepted_len_by_step: tuple[int, ...] | None = None
    stated_acceptance_len: float | None = None
    """The server's own mean, bonus included, where it gives no counts."""
    is_lifetime_average: bool = False
    """True when the figure covers more than this request, as a gauge over the server's life does."""
    is_simulated: bool | None = None
    """Whether the server made these lengths up instead of comparing drafts (a benchmarking mode); None: not said."""
    parts: StepParts | None = None
    """Where the time of the verify steps went, where the server tells."""
    decisions: DraftDecisions | None = None
    """Why it drafted or didn't, where the server tells."""
    doubt: str | None = None
    """Why the figure may be off; None when nothing is known against it."""
