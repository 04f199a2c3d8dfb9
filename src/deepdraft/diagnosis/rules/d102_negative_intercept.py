"""A straight line through the decode times that meets length 0 below zero.

What it sees: the intercept of the linear fit of decode time, with its interval.
Why it matters: no time is below zero, so the line is no law of these points: a slope read from it (or from the first
and last point) is wrong for both ends.
Evidence needed: three lengths or more, an intercept below zero with its whole interval or with points that lie off
the line.
Remedy: read the slopes between neighbouring points; add points where they change.
When it is wrong: noise larger than the intervals tell.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import ms
from deepdraft.stats.interval import CannotTell

CODE = "D102"
NAME = "negative_intercept"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    law = case.decode_law
    if isinstance(law, CannotTell) or not law.is_impossible:
        return ()
    interval = law.intercept.interval
    if interval is not None and interval.high >= 0 and not law.is_lacking:
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="error",
            summary=f"One straight line through all decode times meets length 0 at {ms(law.intercept.value)}, "
            f"which no time can: it is no law of these points (up to {100 * law.residual_frac:.0f} % off). Its "
            f"slope, {ms(law.slope.value * 1e3)} per 1k tokens, describes neither end.",
            evidence=(
                Evidence(name="intercept", value=law.intercept.value, unit="s", source="linear fit, all points"),
                Evidence(name="slope", value=law.slope.value * 1e3, unit="s per 1k tokens", source="linear fit"),
            ),
            remedy="Use the slopes between neighbouring points (D104, D107).",
        ),
    )
