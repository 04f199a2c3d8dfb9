"""A server that decides for itself where drafting pays, and where it left it off.

What it sees: decode steps without drafts, by the reasons that the server gives for them, beside the tokens that a
verify step would have had to commit there, what was expected, and what the verify steps that were made committed.
Why it matters: a rate measured there is that of plain decoding; neither the drafter's quality nor its cost is in it.
Evidence needed: the server's own reasons with each answer (deepdraft serve tells them).
Remedy: nothing, if the drafter is as good as it gets; else what lowers the break-even (a cheaper pass over the rows
of a draft, a drafter's window) or raises acceptance (a drafter trained on such text and such lengths).
When it is wrong: the server's costs are its own estimates, taken while it ran with whatever else was running.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from deepdraft.diagnosis.acceptance import acceptances
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import percent, plain
from deepdraft.metrics.speculation import step_counts
from deepdraft.records import Acceptance
from deepdraft.stats import median

CODE = "D216"
NAME = "drafts_switched_off"
MIN_OFF_FRAC = 0.1
"""Of the steps: less is learning and probing."""
_WORDS = {
    "below_break_even": "below break-even",
    "watch": "below break-even, drafted to see what would be accepted",
    "too_unlikely": "drafted, and no draft likely enough to be verified",
    "nothing_drafted": "the drafter had nothing to propose",
    "no_room": "no room for drafts in the KV pool",
    "learning": "to learn what a step costs",
    "probe": "to see what a plain step costs",
    "never": "speculation switched off by its flag",
    "ending": "the next token was the last",
}


@dataclass(frozen=True, slots=True)
class _Off:
    """One point's steps."""

    point: GuardedPoint
    off_frac: float
    plain_fracs: tuple[tuple[str, float], ...]
    """Share of all steps by reason, the greatest first."""
    break_even_len: float | None
    expected_len: float | None
    committed_len: float | None
    """Of the verify steps that were made; None: none was."""


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run, about all its lengths."""
    known = [found for point in case.points if not point.is_hit and (found := _off(point)) is not None]
    if not any(each.off_frac >= MIN_OFF_FRAC for each in known):
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="info",
            summary=" ".join(_sentence(each) for each in known),
            evidence=tuple(
                Evidence(name="steps without drafts", value=percent(each.off_frac, 3), source=each.point.name)
                for each in known
            ),
            remedy="Where drafting is to pay: lower the break-even (fewer nodes, a drafter's window, a faster verify "
            f"pass) or raise acceptance. What drafting gives there in any case: {case.say('drafting_always')}.",
        ),
    )


def _off(point: GuardedPoint) -> _Off | None:
    told = [(each, each.decisions) for each in acceptances(point) if each.decisions is not None]
    if not told:
        return None
    plain_steps, rounds = Counter[str](), Counter[str]()
    for _, decisions in told:
        plain_steps.update(decisions.plain_steps_by_reason)
        rounds.update(decisions.rounds_by_reason)
    num_steps = plain_steps.total() + rounds.total()
    if not num_steps:
        return None
    return _Off(
        point=point,
        off_frac=plain_steps.total() / num_steps,
        plain_fracs=tuple((reason, count / num_steps) for reason, count in plain_steps.most_common()),
        break_even_len=_median([decisions.break_even_len for _, decisions in told]),
        expected_len=_median([decisions.expected_len for _, decisions in told]),
        committed_len=_committed_len([acceptance for acceptance, _ in told]),
    )


def _sentence(off: _Off) -> str:
    if not off.plain_fracs:
        return f"At {off.point.name} it drafted at every step{_lens(off)}."
    reasons = ", ".join(f"{percent(frac, 2)} {_WORDS.get(reason, reason)}" for reason, frac in off.plain_fracs)
    return f"At {off.point.name} it decoded {percent(off.off_frac, 2)} of the steps plainly ({reasons}){_lens(off)}."


def _lens(off: _Off) -> str:
    got = "no verify step was made" if off.committed_len is None else f"{plain(off.committed_len, 3)} were got"
    if off.break_even_len is None or off.expected_len is None:
        return f": {got}" if off.committed_len is None else f": {plain(off.committed_len, 3)} tokens a verify step"
    return (
        f": a verify step has to commit {plain(off.break_even_len, 3)} tokens to break even, "
        f"{plain(off.expected_len, 3)} were expected, {got}"
    )


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _committed_len(known: Sequence[Acceptance]) -> float | None:
    counts = [step_counts(each) for each in known]
    num_rounds = sum(each.num_verify_steps or 0 for each in counts)
    return 1 + sum(each.num_accepted or 0 for each in counts) / num_rounds if num_rounds else None
