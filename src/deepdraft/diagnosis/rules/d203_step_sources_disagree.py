"""Tokens a step by the server's counters against tokens a step by the stream's arrivals.

What it sees: steps counted by the engine, and bursts of arrivals, in the same requests.
Why it matters: three independent sources (counters, arrivals, step time) must agree; where they don't, the counters
cover something else or something on the way gathers tokens.
Evidence needed: counts of each request and a stream whose bursts can be told apart; more than 20 % between them.
Remedy: read the server directly, one event a step; or trust neither.
When it is wrong: a server that sends an event for each token, or one that holds every k-th back (said beside it).
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import plain
from deepdraft.metrics import output_tokens, steps_of, tokens_per_step
from deepdraft.stats import median

CODE = "D203"
NAME = "step_sources_disagree"
MAX_FRAC = 0.2


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the point that is furthest off."""
    off = [(point, *both) for point in case.points if (both := _both(point)) is not None]
    bad = [each for each in off if abs(each[1] - each[2]) > MAX_FRAC * max(each[1], each[2])]
    if not bad:
        return ()
    point, counted, arrived = max(bad, key=lambda each: abs(each[1] / each[2] - 1))
    others = f"; {len(bad)} points disagree so" if len(bad) > 1 else ""
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="error",
            summary=f"At {point.name} the server's counts give {plain(counted, 3)} tokens a step, the arrivals of "
            f"the stream {plain(arrived, 3)}. One of them is not about decode steps{others}.",
            evidence=(
                Evidence(name="tokens_per_step", value=counted, unit="tokens", source="the server's counts"),
                Evidence(name="tokens_per_step", value=arrived, unit="tokens", source="bursts of arrivals"),
            ),
            remedy="Measure the server without a proxy between, and with one event a step (no stream interval).",
        ),
    )


def _both(point: GuardedPoint) -> tuple[float, float] | None:
    counted, arrived = [], []
    for sample in point.point.samples:
        trace, acceptance = sample.request.trace, sample.request.acceptance
        length, steps = output_tokens(trace), steps_of(trace)
        told = tokens_per_step(acceptance, length) if acceptance is not None and length is not None else None
        if told is None or steps is None or steps.tokens_per_step is None or steps.doubt is not None:
            continue
        counted.append(told.value)
        arrived.append(steps.tokens_per_step)
    return (median(counted), median(arrived)) if counted else None
