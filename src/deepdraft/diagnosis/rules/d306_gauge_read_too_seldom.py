"""Acceptance from a gauge that can't have moved, or that covers the server's whole life.

What it sees: an acceptance figure that is a lifetime average, or (SGLang) one that moves every 40 decode steps while
the answers are no longer than that.
Why it matters: such a figure is of other requests. It is neither 0 nor 1: it is unknown.
Evidence needed: the answers' length; where the figure comes from.
Remedy: counts of each request, or a gauge that moves at every step.
When it is wrong: an interval other than the engine tells.
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import decode_len, is_read_too_seldom, log_interval
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding

CODE = "D306"
NAME = "gauge_read_too_seldom"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run."""
    bad = [point for point in case.points if is_read_too_seldom(case, point)]
    if not bad:
        return ()
    length = decode_len(case, bad[0])
    is_sglang = case.capabilities.engine == "sglang"
    why = (
        f"SGLang's figure moves every {log_interval(case)} decode steps, and an answer here has {length} tokens"
        if is_sglang and length is not None and length <= log_interval(case)
        else "the figure is an average over the server's life"
    )
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="unknown",
            summary="Acceptance is unknown at "
            f"{bad[0].name}{f' and {len(bad) - 1} other points' if len(bad) > 1 else ''}: {why}. It is taken for "
            "neither 0 nor 1.",
            evidence=tuple(Evidence(name="acceptance", value="unknown", source=point.name) for point in bad),
            remedy=f"Count verify steps and accepted drafts of each request: {case.say('request_acceptance')}.",
        ),
    )
