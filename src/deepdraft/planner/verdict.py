"""Whether a plan holds: what stays free against what the longest prefill needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["safe", "tight", "out_of_memory_in_prefill", "does_not_start", "unjudged"]
"""unjudged: the memory there is was not said, so only needs are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judgement and its figures."""

    outcome: Outcome
    summary: str
    """One sentence with the figures that decide."""
    fails_at_len: int | None = None
    """The prompt length from which on a prefill is expected to fail, for out_of_memory_in_prefill."""
    margin_bytes: int | None = None
    """Reserve less spike; negative where it fails."""
    advice: tuple[str, ...] = ()
    """What to do, one sentence each; "confirm with a probe at the longest context" for all that rests on
    estimates."""
