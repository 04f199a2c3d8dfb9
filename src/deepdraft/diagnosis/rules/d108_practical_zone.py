"""The largest context that still meets the limits on TTFT and time per token.

What it sees: TTFT and time per token at each length against limits, the user's or the defaults (said).
Why it matters: a server that accepts 200k tokens need not be usable there.
Evidence needed: two lengths or more with both figures, one stream.
Remedy: what D105 and D103 say of the figure that fails first.
When it is wrong: between two measured lengths the end is interpolated by a straight line.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import Curve
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import ms
from deepdraft.units import seconds_text, tokens_text

CODE = "D108"
NAME = "practical_zone"
_REMEDIES = {
    "ttft_s": "Reuse long prefixes, or make prefill faster (D103, D106).",
    "tpot_s": "Make decode faster at depth (D104, D105).",
}


def find(case: Case) -> tuple[Finding, ...]:
    """Where the zone ends; where it covers all that was measured, that."""
    limits = {"ttft_s": case.facts.ttft_limit_s, "tpot_s": case.facts.tpot_limit_s}
    ends: dict[str, float | None] = {}
    for figure, limit in limits.items():
        curve = case.curve(figure)
        if len(curve.points) < 2:
            return ()
        ends[figure] = _end(curve, limit)
    stated = "" if case.facts.are_limits_given else " (the defaults; state yours with --limits)"
    limit_text = f"TTFT {seconds_text(limits['ttft_s'])} and {ms(limits['tpot_s'])} a token{stated}"
    evidence = tuple(
        Evidence(name=f"{figure} limit", value=limits[figure], unit="s", source=_met(ends[figure]))
        for figure in limits
    )
    failing = {figure: end for figure, end in ends.items() if end is not None}
    longest = min(case.curve(figure).last.context_len for figure in limits)
    if not failing:
        return (
            Finding(
                code=CODE,
                name=NAME,
                severity="info",
                summary=f"The practical zone covers all that was measured, up to {tokens_text(longest)}: "
                f"{limit_text}.",
                evidence=evidence,
            ),
        )
    first = min(failing, key=lambda figure: failing[figure])
    names = {"ttft_s": "TTFT", "tpot_s": "time per token"}
    end = failing[first]
    where = f"ends near {tokens_text(end)}" if end > 0 else "does not exist: the shortest length misses it"
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"The practical zone {where}, by {names[first]}: {limit_text}. What lies beyond works, but "
            "slower than the limits.",
            evidence=evidence,
            remedy=_REMEDIES[first],
        ),
    )


def _end(curve: Curve, limit: float) -> float | None:
    """The length where the figure first passes the limit, by straight lines; 0 where the shortest does; None: "
    "never."""
    before = None
    for point in curve.points:
        value = curve.value(point)
        if value > limit:
            if before is None:
                return 0.0
            low = curve.value(before)
            return before.context_len + (point.context_len - before.context_len) * (limit - low) / (value - low)
        before = point
    return None


def _met(end: float | None) -> str:
    return "met at every length" if end is None else f"met up to {tokens_text(end)}"
