"""Prefill whose time grows with the square of the length.

What it sees: the share of the quadratic term in TTFT = a + b n + c n^2 at the longest length.
Why it matters: twice the prompt takes four times as long; only attention's own speed or fewer uncached tokens help.
Evidence needed: four lengths or more over a factor of 8, cold, without queueing.
Remedy: keep prefixes cached, a faster prefill attention, context parallel prefill.
When it is wrong: TTFT that holds queueing, or clocks that throttle in long prefills.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import percent, plain
from deepdraft.diagnosis.words import capital
from deepdraft.stats.interval import CannotTell, Estimate
from deepdraft.units import seconds_text

CODE = "D103"
NAME = "prefill_attention_bound"
MIN_SHARE = 0.5


def find(case: Case) -> tuple[Finding, ...]:
    """The finding, or the open question where the points can't tell."""
    curve = case.curve("ttft_s")
    if len(curve.points) < 2:
        return ()
    law = case.prefill_law
    if isinstance(law, CannotTell):
        return (_unknown(law.reason, law.would_tell),)
    if law.is_quadratic == "cannot tell":
        return (_unknown(f"whether prefill grows with the square of the length: {law.rests_on}", "more repeats"),)
    last = curve.last
    share = law.shares(last.context_len).quadratic
    if law.is_quadratic == "no" or share.value < MIN_SHARE:
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="info",
            summary=f"Prefill is attention-bound at length: TTFT = {plain(law.a.value, 2)} s + "
            f"{plain(law.b.value * 1e3, 3)} s k + {plain(law.c.value * 1e6, 3)} s k^2 (k: thousand tokens), of "
            f"which the quadratic term is {_share_text(share)} at {last.name} ({seconds_text(curve.value(last))}).",
            evidence=(
                Evidence(name="c", value=law.c.value, unit="s/token^2", source="fit of TTFT"),
                Evidence(name="b", value=law.b.value, unit="s/token", source="fit of TTFT"),
                Evidence(name="quadratic share", value=share.value, source=last.name),
                Evidence(name="largest residual", value=law.residual_frac, source="of the fit"),
                *(Evidence(name="doubt", value=text) for text in law.doubts),
            ),
            remedy="Reuse long prefixes (prefix cache, stable prompt heads); see D106 for the attention kernel's "
            "rate.",
        ),
    )


def _share_text(share: Estimate) -> str:
    if share.interval is None:
        return percent(share.value)
    return f"{percent(share.value)} [{percent(share.interval.low)} - {percent(share.interval.high)}]"


def _unknown(reason: str, would_tell: str) -> Finding:
    return Finding(
        code=CODE,
        name=NAME,
        severity="unknown",
        summary=f"The law of prefill can't be told: {reason}.",
        remedy=f"{capital(would_tell)}.",
    )
