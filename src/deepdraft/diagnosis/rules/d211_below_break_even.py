"""Speculation that loses at some lengths.

What it sees: time per token with and without the drafter at the same lengths, and the acceptance length at which they
would be equal: (draft + verify step) / plain decode step.
Why it matters: a drafter that pays at 2k may halve the rate at 185k.
Evidence needed: a run with and a run without the drafter at the same length, a difference that rounding and repeats
don't bridge.
Remedy: turn the drafter off beyond the crossover, or make steps cheaper there.
When it is wrong: runs on different texts, or at different load.
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import trusted_acceptance_len
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.finding import Evidence, Finding, by_support
from deepdraft.diagnosis.hypotheses.drafter_rescan import drafter_rescan
from deepdraft.diagnosis.number import plain, times
from deepdraft.diagnosis.pairing import Pair, pairs
from deepdraft.units import tokens_text

CODE = "D211"
NAME = "below_break_even"
_RATE = "decode_tok_s"
MAX_STEP_BETWEEN = 2.0
"""Lengths proposed for the crossover are at most this factor apart."""


def find(case: Case) -> tuple[Finding, ...]:
    """Against each baseline one finding; the open question where there is none, or none with a length in common."""
    if not case.speculates or not case.curve(_RATE).points:
        return ()
    compared = [(baseline, both) for baseline in case.baselines if (both := pairs(case, baseline, _RATE))]
    if not compared:
        return (_not_known(case),)
    found = [_against(case, baseline, both) for baseline, both in compared]
    return tuple(finding for finding in found if finding is not None)


def _not_known(case: Case) -> Finding:
    if case.baselines:
        why = "the run without it has no length in common"
        remedy = "Measure the same lengths in both runs."
    else:
        why = "there is no run without it"
        remedy = f"Measure the same lengths once more and {case.say('drafter_off')}, then give both files."
    return Finding(
        code=CODE,
        name=NAME,
        severity="unknown",
        summary=f"Whether the drafter pays, and up to which length, can't be told: {why}.",
        remedy=remedy,
    )


def _against(case: Case, baseline: Case, both: tuple[Pair, ...]) -> Finding | None:
    losing = [pair for pair in both if _is_loss(pair)]
    if not losing:
        return None
    worst = losing[-1]
    return Finding(
        code=CODE,
        name=NAME,
        severity="warning",
        summary=f"Speculation loses at {worst.own.name}: {plain(worst.own_value, 3)} tok/s with the drafter, "
        f"{plain(worst.other_value, 3)} without, {times(worst.ratio)} "
        f"slower.{_break_even(case, worst)}{_crossover(case, both, losing)}",
        evidence=tuple(
            Evidence(
                name="tok/s with / without the drafter",
                value=1 / pair.ratio,
                source=f"{pair.own.name}, {baseline.name}",
            )
            for pair in both
        ),
        remedy=f"Beyond the crossover {case.say('drafter_off')}; else {case.say('draft_len')}, or "
        f"{case.say('draft_window')}. Verify cost without a good drafter: {case.say('synthetic_acceptance')}.",
        hypotheses=by_support((drafter_rescan(case),)),
        worth=worst.ratio,
    )


def _is_loss(pair: Pair) -> bool:
    own, other = pair.own.limits(_RATE), pair.other.limits(_RATE)
    return own is not None and other is not None and own[1] < other[0]


def _break_even(case: Case, pair: Pair) -> str:
    length = trusted_acceptance_len(case, pair.own)
    if length is None:
        return " The acceptance that would break even can't be told: tokens a step are not known there."
    return (
        f" It commits {plain(length, 3)} tokens a step there; break_even_acceptance_len is "
        f"{plain(length * pair.ratio, 3)}."
    )


def _crossover(case: Case, both: tuple[Pair, ...], losing: list[Pair]) -> str:
    loss = losing[0]
    winning = [pair for pair in both if pair.context_len < loss.context_len and not _is_loss(pair)]
    likely = _likely_gain(case, loss)
    if winning:
        low = winning[-1].own
        text = f" At {low.name} it does not lose."
    elif likely is not None:
        low, factor = likely
        text = (
            f" At {low.name} it makes {times(factor)} the rate that the server has at {loss.own.name} without the "
            "drafter: likely a gain (not measured without it)."
        )
    else:
        return ""
    lens = ", ".join(tokens_text(each) for each in _between(low.context_len, loss.context_len))
    return (
        f"{text} The crossover lies between {tokens_text(low.context_len)} and {tokens_text(loss.context_len)} and "
        f"is not located: measure {lens} with and without the drafter."
    )


def _likely_gain(case: Case, loss: Pair) -> tuple[GuardedPoint, float] | None:
    curve = case.curve(_RATE)
    faster = [
        (point, curve.value(point) / loss.other_value)
        for point in curve.points
        if point.context_len < loss.context_len and curve.value(point) > loss.other_value
    ]
    return faster[-1] if faster else None


def _between(low: float, high: float) -> tuple[float, ...]:
    """Lengths between the two, each at most double the one before, rounded to two digits."""
    num = 0
    while (high / low) ** (1 / (num + 1)) > MAX_STEP_BETWEEN and num < 6:
        num += 1
    num = max(num, 1)
    ratio = (high / low) ** (1 / (num + 1))
    return tuple(float(f"{low * ratio ** (place + 1):.2g}") for place in range(num))
