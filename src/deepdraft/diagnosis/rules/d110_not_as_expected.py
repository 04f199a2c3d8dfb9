"""Measured times over what a performance model expects of this model, device and engine.

What it sees: measured / expected for prefill and for decode at each length (with --expected).
Why it matters: it is often the whole diagnosis in one line: which of the two is off, and from which length on.
Evidence needed: expected times; they are for a server without a drafter.
Remedy: look at the half that is off.
When it is wrong: the performance model itself is off by 25 % in decode and up to 2 times in prefill.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import plain
from deepdraft.units import tokens_text

CODE = "D110"
NAME = "not_as_expected"
SAME_LEN_FRAC = 0.05
AS_EXPECTED = 2.0
MIN_POINTS = 1


def ratios(case: Case, figure: str) -> tuple[tuple[int, float], ...]:
    """Length and measured / expected, by growing length."""
    curve = case.curve(figure)
    found = []
    for point in curve.points:
        for expected in case.facts.expected:
            if abs(expected.context_len - point.context_len) <= SAME_LEN_FRAC * point.context_len:
                wanted = expected.ttft_s if figure == "ttft_s" else expected.tpot_s
                found.append((point.context_len, curve.value(point) / wanted))
                break
    return tuple(found)


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run; none without expected times."""
    prefill, decode = ratios(case, "ttft_s"), ratios(case, "tpot_s")
    if len(prefill) < MIN_POINTS and len(decode) < MIN_POINTS:
        return ()
    worst = max((ratio for _, ratio in (*prefill[-1:], *decode[-1:])), default=1.0)
    halves = [text for text in (_text("prefill", prefill), _text("decode", decode)) if text]
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning" if worst > AS_EXPECTED else "info",
            summary=f"Measured over expected: {'; '.join(halves)}.",
            evidence=(*_rows(prefill, decode), Evidence(name="expected by", value=case.facts.expected[0].source)),
            remedy="Look at the half that is off: D105 for decode, D106 for prefill." if worst > AS_EXPECTED else "",
            worth=worst,
        ),
    )


def _rows(*halves: tuple[tuple[int, float], ...]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(name=f"{half} measured / expected", value=ratio, source=tokens_text(length))
        for half, rows in zip(("prefill", "decode"), halves, strict=True)
        for length, ratio in rows
    )


def _text(half: str, rows: tuple[tuple[int, float], ...]) -> str:
    if not rows:
        return ""
    return f"{half} " + ", ".join(f"{plain(ratio, 3)} at {tokens_text(length)}" for length, ratio in rows)
