"""Decode that slows down as the context grows, and by how much per 1k tokens.

What it sees: the slopes of decode time between neighbouring lengths, with intervals from repeats or rounding.
Why it matters: it is the price of depth; and a slope from the first to the last point alone hides where it changes.
Evidence needed: two lengths or more; steps counted, where a drafter is active, to speak of steps.
Remedy: see D105: how far it is from what the device can do.
When it is wrong: acceptance that falls with the context looks the same in time per token.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import ms, plain
from deepdraft.stats.interval import CannotTell
from deepdraft.stats.knee import Knee
from deepdraft.stats.segment import Segment
from deepdraft.units import tokens_text

CODE = "D104"
NAME = "decode_grows_with_context"
MIN_GROWTH = 1.2
"""Of the decode time from the shortest to the longest; less is not worth a finding."""


def find(case: Case) -> tuple[Finding, ...]:
    """The finding, and with three lengths the open question of the law."""
    curve = case.decode_curve
    if len(curve.points) < 2:
        return ()
    first, last = curve.first, curve.last
    low, high = first.limits(curve.figure), last.limits(curve.figure)
    assert low is not None and high is not None
    if high[0] < MIN_GROWTH * low[1]:
        return ()
    segments = case.decode_segments
    what = "a step" if case.is_step_known else "a token"
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="info",
            summary=f"Decode grows with the context: {ms(curve.value(first))} {what} at {first.name}, "
            f"{ms(curve.value(last))} at {last.name}; "
            f"{_slopes_text(case, segments)}{_token_text(case)}",
            evidence=tuple(_evidence(segment) for segment in segments)
            + tuple(Evidence(name="left out", value=text) for text in curve.left_out),
            remedy=_remedy(case),
        ),
    )


def _slopes_text(case: Case, segments: tuple[Segment, ...]) -> str:
    knee, law = case.decode_knee, case.decode_law
    if case.can_show_knee and isinstance(knee, Knee) and knee.after.value > knee.before.value:
        before = tuple(segment for segment in segments if segment.x_high <= knee.between[0] + 1)
        return (
            f"{_range(before)} per 1k tokens up to {tokens_text(knee.between[0])}, then more (D107). {_chord(case)}"
        )
    if isinstance(law, CannotTell):
        return f"{_range(segments)} per 1k tokens. Whether it is linear can't be told ({law.reason})."
    if law.is_lacking or law.is_impossible:
        return f"{_range(segments)} per 1k tokens between neighbouring lengths; no single line fits."
    return f"a line fits: {ms(law.intercept.value)} + {ms(law.slope.value * 1e3)} per 1k tokens."


def _chord(case: Case) -> str:
    curve = case.decode_curve
    rise_s = curve.value(curve.last) - curve.value(curve.first)
    chord_s = rise_s / (curve.last.context_len - curve.first.context_len) * 1e3
    return f"{ms(chord_s, 2)} is only the chord from end to end."


def _range(segments: tuple[Segment, ...]) -> str:
    slopes = [segment.slope.value * 1e6 for segment in segments]
    low, high = plain(min(slopes)), plain(max(slopes))
    return f"{low} ms" if low == high else f"{low} - {high} ms"


def _token_text(case: Case) -> str:
    if case.is_step_known:
        return ""
    return " This is time per token: tokens a step are not known, so steps take as long or longer."


def _evidence(segment: Segment) -> Evidence:
    interval = segment.slope.interval
    between = f"{tokens_text(segment.x_low)} - {tokens_text(segment.x_high)}"
    bounds = f" [{plain(interval.low * 1e6, 3)} - {plain(interval.high * 1e6, 3)}]" if interval is not None else ""
    method = f", {interval.method}" if interval is not None else ""
    return Evidence(
        name="slope",
        value=f"{plain(segment.slope.value * 1e6, 3)}{bounds}",
        unit="ms per 1k tokens",
        source=f"{between}{method}",
    )


def _remedy(case: Case) -> str:
    if case.model is None or case.device is None:
        return "Give --model and --device to see how far this is from what the device can do."
    return "See D105: how far this is from what the device can do."
