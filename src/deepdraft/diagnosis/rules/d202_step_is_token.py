"""A "time per step" that is a time per token.

What it sees: a reported step time that equals 1 / (tokens a second) at every point, beside a drafter.
Why it matters: with a drafter a step commits several tokens; a bandwidth or a kernel time computed from a token's
time is off by that factor.
Evidence needed: both figures at two points or more, equal to within rounding (or 1 %).
Remedy: count steps.
When it is wrong: a drafter that never has a draft accepted: then a step is a token.
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import trusted_acceptance_len
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import ms
from deepdraft.units import tokens_text

CODE = "D202"
NAME = "step_is_token"
_TOLERANCE = 0.01
MIN_POINTS = 2


def tokens_called_steps(case: Case) -> tuple[GuardedPoint, ...]:
    """The points whose reported step time is their time per token; none unless all with both agree."""
    if case.speculates is False:
        return ()
    both = [
        point
        for point in case.points
        if point.point.reported is not None
        and "step_s" in point.point.reported.figures
        and "tpot_s" in point.point.figures
        and trusted_acceptance_len(case, point) is None
    ]
    return tuple(both) if len(both) >= MIN_POINTS and all(_is_equal(point) for point in both) else ()


def _is_equal(point: GuardedPoint) -> bool:
    step, token = point.limits("step_s"), point.limits("tpot_s")
    assert step is not None and token is not None
    return step[0] <= token[1] * (1 + _TOLERANCE) and token[0] <= step[1] * (1 + _TOLERANCE)


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    points = tokens_called_steps(case)
    if not points:
        return ()
    evidence = [
        Evidence(
            name=figure, value=point.median(name) or 0.0, unit="s", source=f"{tokens_text(point.context_len)} tokens"
        )
        for point in (points[0], points[-1])
        for figure, name in (("reported step", "step_s"), ("1 / (tok/s)", "tpot_s"))
    ]
    last = points[-1]
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="error",
            summary=f"What is called ms/step is ms per token: at all {len(points)} points it equals 1000 / "
            f"(tok/s), as at {last.name} ({ms(last.median('step_s') or 0.0)}). Steps were not measured, so neither "
            "the time of a verify step nor the tokens it commits are known from it.",
            evidence=tuple(evidence),
            remedy=f"Count verify steps and accepted drafts of each request: {case.say('request_acceptance')}.",
        ),
    )
