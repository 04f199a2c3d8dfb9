"""Tokens a step that follow from a step time at one length and a token time at another.

What it sees: a step time at one length, and a smaller time per token at the same or a longer length. Time per token
does not fall as the context grows, so the quotient is a lower bound of the tokens a step commits.
Why it matters: it tells whether the drafter gave anything where nobody counted, and refutes a commit length of 1.
Evidence needed: a step time that is not itself a token time, and a time per token at no shorter length.
Remedy: count steps.
When it is wrong: the two were measured on different texts: repetitive text favours the drafter.
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import statements
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import Curve, GuardedPoint
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import ms, plain
from deepdraft.diagnosis.rules.d202_step_is_token import tokens_called_steps

CODE = "D204"
NAME = "implied_tokens_per_step"
MIN_FACTOR = 1.15


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the largest bound."""
    if case.speculates is False:
        return ()
    curve = case.curve("tpot_s")
    excluded = {id(point) for point in tokens_called_steps(case)}
    bounds = [
        (step, longer, (step.median("step_s") or 0.0) / curve.value(longer))
        for step in case.points
        if "step_s" in step.point.figures and "tpot_s" not in step.point.figures and id(step) not in excluded
        for longer in curve.points
        if longer.context_len >= step.context_len
    ]
    if not bounds:
        return ()
    step, longer, factor = max(bounds, key=lambda each: each[2])
    if factor < MIN_FACTOR:
        return ()
    step_s, tpot_s = step.median("step_s") or 0.0, curve.value(longer)
    between = _interpolated(curve, step)
    guess = f" (about {plain(step_s / between)} if time per token is interpolated to that length)" if between else ""
    said = [each for point in case.points for each in statements(point) if each.tokens_per_step < 1.1]
    contradicts = f" That contradicts {said[0].name}, which says {plain(said[0].tokens_per_step, 3)}." if said else ""
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="error" if said else "info",
            summary=f"{ms(step_s)} a step at {step.name} beside {ms(tpot_s)} a token at {longer.name} imply at "
            f"least {plain(factor)} tokens a step{guess}, unless the texts differ.{contradicts}",
            evidence=(
                Evidence(name="step_s", value=step_s, unit="s", source=step.name),
                Evidence(name="tpot_s", value=tpot_s, unit="s", source=longer.name),
                Evidence(name="tokens_per_step", value=factor, unit="tokens", source="step_s / tpot_s, at least"),
            ),
            remedy=f"Count verify steps and accepted drafts of each request: {case.say('request_acceptance')}.",
        ),
    )


def _interpolated(curve: Curve, step: GuardedPoint) -> float | None:
    below = [point for point in curve.points if point.context_len <= step.context_len]
    above = [point for point in curve.points if point.context_len > step.context_len]
    if not below or not above:
        return None
    low, high = below[-1], above[0]
    share = (step.context_len - low.context_len) / (high.context_len - low.context_len)
    return curve.value(low) + share * (curve.value(high) - curve.value(low))
