"""Acceptance that falls as the context grows.

What it sees: the acceptance length against context, cold prompts of one workload only; the share of steps that accept
each depth where it is told; and how much of the slower decode is left for the step itself.
Why it matters: a drafter trained on short context may be worth half or nothing at 100k and more.
Evidence needed: two lengths at least, a fall of more than 15 % that neither the repeats nor the number of steps
explain.
Remedy: fewer draft tokens at depth, a drafter window, or a drafter fine-tuned on long context.
When it is wrong: texts that differ with the length; prefix hits whose prompt left no draft features.
"""

from __future__ import annotations

import math

from deepdraft.diagnosis.acceptance import is_contradictory, is_read_too_seldom, rates_by_depth, standard_error
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import plain, times
from deepdraft.stats.interval import CannotTell
from deepdraft.stats.law import linear_law

CODE = "D209"
NAME = "acceptance_falls_with_context"
MIN_FALL_FRAC = 0.15
MIN_LEN_FACTOR = 1.5
MIN_ERRORS = 3.0
"""Standard errors of the difference, by the number of steps on each side."""


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    curve = case.curve("acceptance_len")
    points = [
        point
        for point in curve.points
        if curve.value(point) >= 1 and not is_contradictory(point) and not is_read_too_seldom(case, point)
    ]
    if len(points) < 2:
        return ()
    first, last = points[0], points[-1]
    if last.context_len < MIN_LEN_FACTOR * first.context_len:
        return ()
    before, after = first.limits("acceptance_len"), last.limits("acceptance_len")
    assert before is not None and after is not None
    drop = curve.value(first) - curve.value(last)
    chance = math.hypot(*(standard_error(point, curve.value(point)) for point in (first, last)))
    if drop < MIN_FALL_FRAC * curve.value(first) or drop < MIN_ERRORS * chance or after[1] >= before[0]:
        return ()
    factor = curve.value(first) / curve.value(last)
    where = (
        f" Where between {first.name} and {last.name} it falls can't be told from two points."
        if len(points) == 2
        else ""
    )
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"A step commits {plain(curve.value(first), 3)} tokens at {first.name} and "
            f"{plain(curve.value(last), 3)} at {last.name}: {times(factor)} "
            f"fewer.{_trend(points)}{_split(first, last, factor)}{_depths(first, last)}{where}",
            evidence=tuple(
                Evidence(name="acceptance_len", value=curve.value(point), unit="tokens", source=point.name)
                for point in points
            )
            + tuple(Evidence(name="left out", value=text) for text in curve.left_out),
            remedy=f"At depth {case.say('draft_len')}; try {case.say('draft_window')}; a drafter fine-tuned on "
            "long context keeps its acceptance.",
            worth=factor,
        ),
    )


def _trend(points: list[GuardedPoint]) -> str:
    """The line through the acceptance lengths, where one fits."""
    law = linear_law([seen for point in points if (seen := point.observed("acceptance_len")) is not None])
    if isinstance(law, CannotTell) or law.is_lacking or law.slope.value >= 0:
        return ""
    slope = plain(-law.slope.value * 1e4)
    interval = law.slope.interval
    bounds = f" [{plain(-interval.high * 1e4)} - {plain(-interval.low * 1e4)}]" if interval is not None else ""
    return f" A line fits: {slope}{bounds} tokens a step fewer for every 10k tokens."


def _split(first: GuardedPoint, last: GuardedPoint, factor: float) -> str:
    """How much of a slower token is fewer tokens a step, and how much a slower step."""
    fast, slow = first.median("tpot_s"), last.median("tpot_s")
    if fast is None or slow is None:
        return ""
    step_factor = (slow / fast) / factor
    return (
        f" A token takes {times(slow / fast)} as long: {times(factor)} by fewer tokens a step, the other "
        f"{times(step_factor)} by slower steps."
    )


def _depths(first: GuardedPoint, last: GuardedPoint) -> str:
    short, long = rates_by_depth(first), rates_by_depth(last)
    if not short or not long:
        return ""
    return f" Accepted at depth 1, 2, ...: {_rates(short)} -> {_rates(long)}."


def _rates(rates: tuple[float, ...]) -> str:
    return ", ".join(f"{100 * rate:.0f} %" for rate in rates[:6]) + (", ..." if len(rates) > 6 else "")
