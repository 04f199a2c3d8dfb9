"""Which of several sources of acceptance to believe, what one adds to another, and when they tell of one request.

Pure; where the sources' figures come from is `acceptance`'s business.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from deepdraft.adapters.acceptance import CONTRADICTION_FRAC, gain
from deepdraft.records import Acceptance, RequestTrace, ServerReading


def best(candidates: Sequence[Acceptance | None]) -> Acceptance | None:
    """The first source that says anything, with a doubt when a later one that can be compared contradicts it.

    Lifetime averages and log lines that cover an interval of the engine are not compared: they tell of other steps.
    """
    said = [acceptance for acceptance in candidates if acceptance is not None]
    if not said:
        return None
    chosen = said[0]
    chosen_len = acceptance_len(chosen)
    if chosen_len is None or _covers_other_steps(chosen):
        return chosen
    for other in said[1:]:
        other_len = acceptance_len(other)
        if other_len is None or _covers_other_steps(other):
            continue
        if abs(other_len - chosen_len) > CONTRADICTION_FRAC * chosen_len:
            words = f"{other.source} says {other_len:.2f}, not {chosen_len:.2f}"
            return replace(chosen, doubt=f"{chosen.doubt}; {words}" if chosen.doubt else words)
    return chosen


def with_steps_from(acceptance: Acceptance, counted: Acceptance | None) -> Acceptance:
    """An answer's own counts, completed by the steps and depths of counters that agree with it on the tokens."""
    if counted is None or not counted.num_steps:
        return acceptance
    if acceptance.accepted_len_histogram is not None and acceptance.num_steps == counted.num_steps:
        return acceptance  # there is nothing to complete
    same = (
        acceptance.num_draft_tokens == counted.num_draft_tokens
        and acceptance.num_accepted_tokens == counted.num_accepted_tokens
    )
    if not same:
        return acceptance
    return replace(
        acceptance,
        source=f"{acceptance.source.split('; steps =')[0]}; steps from the {counted.source}",
        num_steps=counted.num_steps,
        accepted_at_depth=acceptance.accepted_at_depth or counted.accepted_at_depth,
    )


def acceptance_len(acceptance: Acceptance) -> float | None:
    """Committed tokens a verify step, bonus included, from the counts, else as stated: to compare sources only."""
    if acceptance.num_steps and acceptance.num_accepted_tokens is not None:
        return 1 + acceptance.num_accepted_tokens / acceptance.num_steps
    return acceptance.stated_acceptance_len


def _covers_other_steps(acceptance: Acceptance) -> bool:
    interval = acceptance.source.startswith("server log") and acceptance.doubt is not None
    return interval or acceptance.is_lifetime_average


def others_ran(trace: RequestTrace, before: ServerReading | None, after: ServerReading) -> bool:
    """Whether the readings show requests of other clients: one that ran before ours, or more tokens than ours has."""
    if before is not None and (before.num_running or before.num_waiting):
        return True
    ours = None if trace.usage is None else trace.usage.completion_tokens
    generated = None if before is None else gain("generation_tokens", before, after)
    return ours is not None and generated is not None and generated > ours * 1.05 + 2
