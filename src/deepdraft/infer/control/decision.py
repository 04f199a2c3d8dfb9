"""What was decided for one request in one step, and why, in words that records, counters and reports share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

SpeculationMode = Literal["auto", "always", "never"]
"""auto: draft where it pays. always: wherever there is use and room for drafts. never: the drafter only looks on."""

SPECULATION_MODES: tuple[SpeculationMode, ...] = get_args(SpeculationMode)

Reason = Literal[
    "pays",
    "probe",
    "learning",
    "always",
    "below_break_even",
    "watch",
    "too_unlikely",
    "nothing_drafted",
    "no_room",
    "ending",
    "never",
]
"""Of a round, or of a plain step of an engine with a drafter:

    pays              a round: more tokens a second than plain steps, as far as is known
    probe             a round below break-even, or a plain step above it, to see whether that is still so
    learning          a round or a plain step, since the cost of its kind is not known yet
    always, never     as the mode says
    below_break_even  plain: a round would commit too few tokens for what it costs
    watch             plain, below break-even: drafted all the same, to see what would have been accepted
    too_unlikely      plain: drafted, and then no draft was likely enough to be verified
    nothing_drafted   plain: the drafter had nothing to propose
    no_room           plain: the pool has no room for drafts
    ending            plain: the next token is the last, whatever it is
"""

REASONS: tuple[Reason, ...] = get_args(Reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Of one request in one decode or verify step."""

    reason: Reason
    break_even_len: float | None = None
    """Tokens a round would have to commit to be as fast as plain steps, by what was known before the step. None: not
    weighed (a mode, or costs that are not known)."""
    expected_len: float | None = None
    """Tokens a round was expected to commit, bonus token included. None: not weighed."""
