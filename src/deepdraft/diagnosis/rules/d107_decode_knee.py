"""A length beyond which decode slows down faster than before.

What it sees: slopes of decode time whose intervals don't overlap with all those before, in a shape that no smooth
curve explains; from eight lengths on a line with a bend.
Why it matters: beyond it another thing takes over (a full pool, another kernel), and no forecast from below holds.
Evidence needed: four lengths or more with repeats or known rounding; counted steps, or one workload throughout, since
acceptance that changes looks the same.
Remedy: points between, then the experiments.
When it is wrong: points measured on another day, on another server, or on another text.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.hypotheses.retraction import retraction
from deepdraft.diagnosis.number import plain, times
from deepdraft.diagnosis.words import capital
from deepdraft.stats.interval import CannotTell, Estimate
from deepdraft.stats.knee import Knee
from deepdraft.units import tokens_text

CODE = "D107"
NAME = "decode_knee"


def find(case: Case) -> tuple[Finding, ...]:
    """The finding, or the open question where something looks like a knee and these points can't tell."""
    if not case.can_show_knee:
        return ()
    curve = case.decode_curve
    found = case.decode_knee
    if isinstance(found, CannotTell):
        return _unknown(case, found)
    if not isinstance(found, Knee) or found.after.value <= found.before.value:
        return ()
    low, high = (tokens_text(end) for end in found.between)
    what = "a step" if case.is_step_known else "a token"
    beyond = next((point for point in curve.points if point.context_len >= found.between[1] - 1), curve.last)
    caveat = "" if case.is_step_known else " Tokens a step are not known: acceptance that falls there looks the same."
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"There is a knee between {low} and {high}: time {what} grows {_slope(found.before)} ms per 1k "
            f"tokens before it and {_slope(found.after)} after, {times(found.ratio.value)} as much; "
            f"{_ruled_out(found)} Its cause is not established.{caveat}",
            evidence=(
                Evidence(
                    name="slope before", value=_slope(found.before), unit="ms per 1k tokens", source=found.method
                ),
                Evidence(name="slope after", value=_slope(found.after), unit="ms per 1k tokens", source=found.method),
                Evidence(name="ratio", value=_ratio(found.ratio), source=found.method),
            ),
            remedy=f"Measure {tokens_text((found.between[0] + found.between[1]) / 2)} and one length beyond "
            f"{high}, three repeats each.",
            hypotheses=(retraction(case, beyond.context_len),),
            worth=min(found.ratio.value, 10.0),
        ),
    )


def _unknown(case: Case, cannot: CannotTell) -> tuple[Finding, ...]:
    """Asked only where the slopes rise enough to ask."""
    segments = case.decode_segments
    if len(segments) < 2 or segments[-1].slope.value < 1.3 * max(segments[0].slope.value, 0.0):
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="unknown",
            summary="The last slope of decode time is steeper than the first; whether that is a knee can't be "
            f"told: {cannot.reason}.",
            remedy=f"{capital(cannot.would_tell)}.",
        ),
    )


def _slope(slope: Estimate) -> str:
    text = plain(slope.value * 1e6, 3)
    if slope.interval is None:
        return text
    return f"{text} [{plain(slope.interval.low * 1e6, 3)} - {plain(slope.interval.high * 1e6, 3)}]"


def _ratio(ratio: Estimate) -> str:
    if ratio.interval is None:
        return plain(ratio.value, 3)
    return f"{plain(ratio.value, 3)} [{plain(ratio.interval.low, 3)} - {plain(ratio.interval.high, 3)}]"


def _ruled_out(found: Knee) -> str:
    interval = found.after.interval
    if interval is not None and "rounding alone" in interval.method:
        return "rounding can't explain it (how far repeats would lie apart is not known)."
    return "repeats and rounding can't explain it."
