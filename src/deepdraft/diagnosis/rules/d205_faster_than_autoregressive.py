"""Decode faster than one token a step can be.

What it sees: time per token below the floor of one decode step (weights and KV cache read once at full bandwidth), or
below what a performance model expects of a server without a drafter.
Why it matters: such a point commits more than one token a step, whatever else is said; without a drafter it was not
measured as it says.
Evidence needed: the model and the device (or expected times).
Remedy: count steps; without a drafter, look for what bundles tokens.
When it is wrong: weights that are smaller than config.json tells, or a device with more bandwidth than stated.
"""

from __future__ import annotations

from deepdraft.cost.floor import decode_floor_s
from deepdraft.diagnosis.acceptance import statements
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import ms, plain

CODE = "D205"
NAME = "faster_than_autoregressive"
EXPECTED_MARGIN = 0.95
SAME_LEN_FRAC = 0.1


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the point furthest below the floor, else the one below what is expected."""
    below = [
        (point, floor)
        for point in case.curve("tpot_s").points
        if (floor := _floor_s(case, point)) is not None and _fastest(point) < floor
    ]
    if below:
        point, floor = max(below, key=lambda each: each[1] / _fastest(each[0]))
        return (_below_floor(case, point, floor),)
    return _below_expected(case)


def _floor_s(case: Case, point: GuardedPoint) -> float | None:
    if case.model is None or case.device is None:
        return None
    return decode_floor_s(case.model, case.device, point.context_len, case.tp_size)


def _fastest(point: GuardedPoint) -> float:
    """The time per token at the slow end of its rounding: what is below a floor even so."""
    seen = point.observed("tpot_s")
    assert seen is not None
    return seen.rounding[1] if seen.rounding is not None else seen.middle


def _below_floor(case: Case, point: GuardedPoint, floor_s: float) -> Finding:
    tpot_s = _fastest(point)
    ones = [each for each in statements(point) if each.tokens_per_step < floor_s / tpot_s]
    if case.speculates is False:
        verdict = (
            "No drafter is active, so this can't be: tokens are gathered on the way, or the facts given are wrong."
        )
    elif ones:
        verdict = f"{ones[0].name} says {plain(ones[0].tokens_per_step, 3)}: both can't hold."
    else:
        verdict = "The drafter gives at least that."
    return Finding(
        code=CODE,
        name=NAME,
        severity="error" if case.speculates is False or ones else "info",
        summary=f"At {point.name} a token takes {ms(tpot_s)}; one step can't take less than {ms(floor_s)} on this "
        f"device, so a step commits at least {plain(floor_s / tpot_s)} tokens. {verdict}",
        evidence=(
            Evidence(name="tpot_s", value=tpot_s, unit="s", source=point.name),
            Evidence(
                name="decode_floor_s", value=floor_s, unit="s", source="weights and KV read once, full bandwidth"
            ),
        ),
        remedy=f"Count verify steps and accepted drafts of each request: {case.say('request_acceptance')}.",
    )


def _below_expected(case: Case) -> tuple[Finding, ...]:
    if case.speculates is False:
        return ()
    for expected in case.facts.expected:
        for point in case.curve("tpot_s").points:
            near = abs(point.context_len - expected.context_len) <= SAME_LEN_FRAC * expected.context_len
            tpot_s = _fastest(point)
            if near and tpot_s < EXPECTED_MARGIN * expected.tpot_s:
                return (
                    Finding(
                        code=CODE,
                        name=NAME,
                        severity="info",
                        summary=f"At {point.name} a token takes {ms(tpot_s)}, below the {ms(expected.tpot_s)} that "
                        "is expected of a step without a drafter: probably more than one token a step was "
                        "committed there.",
                        evidence=(
                            Evidence(name="tpot_s", value=tpot_s, unit="s", source=point.name),
                            Evidence(name="expected", value=expected.tpot_s, unit="s", source=expected.source),
                        ),
                        remedy="Count verify steps and accepted drafts of each request: "
                        f"{case.say('request_acceptance')}.",
                    ),
                )
    return ()
