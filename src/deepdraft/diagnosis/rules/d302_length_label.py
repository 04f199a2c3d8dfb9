"""A label that is not the prompt's length.

What it sees: the length a point was asked (or labelled) at, and the prompt tokens as counted.
Why it matters: "128k" over 82,845 tokens is a figure at another depth.
Evidence needed: counted prompt tokens.
Remedy: use the actual length; this program does so everywhere.
When it is wrong: a server that counts other than it computes.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.guarded import violations

CODE = "D302"
NAME = "length_label"
MAX_FRAC = 0.02


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the label that is furthest off."""
    off = []
    proved = {name for name, _ in violations(case, "prompt_len")}
    for point in case.points:
        asked, actual = point.point.asked_context_len, point.context_len
        is_reported_off = (
            point.point.reported is not None
            and point.point.reported.context_len is not None
            and abs(asked - actual) > MAX_FRAC * actual
        )
        if is_reported_off or (point.name in proved and asked != actual):
            off.append(point)
    if not off:
        return ()
    worst = max(off, key=lambda point: abs(point.point.asked_context_len / point.context_len - 1))
    asked, actual = worst.point.asked_context_len, worst.context_len
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"The point labelled {asked:,} tokens has {actual:,} prompt tokens "
            f"({100 * (actual / asked - 1):+.0f} %){f'; {len(off)} labels are off' if len(off) > 1 else ''}. The "
            "actual length is used everywhere here.",
            evidence=tuple(
                Evidence(
                    name="prompt tokens",
                    value=float(point.context_len),
                    unit="tokens",
                    source=f"labelled {point.point.asked_context_len:,}",
                )
                for point in off
            ),
            remedy="Compare points by prompt tokens, never by label.",
        ),
    )
