"""Tokens a step from three sources: the server's counts, the stream's arrivals, and step time over token time.

What it sees: steps counted by the engine, bursts of arrivals, and where the server tells the seconds of its steps
also the time of a step by its clock over the time of a token by the client's, in the same requests.
Why it matters: three independent sources must agree; where they don't, the counters cover something else or something
on the way gathers tokens.
Evidence needed: counts of each request and a stream whose bursts can be told apart, more than 20 % between them; or
seconds of steps that exceed the time there was by 20 %, or fill less than half of it.
Remedy: read the server directly, one event a step; or trust neither.
When it is wrong: a server that sends an event for each token, or one that holds every k-th back (said beside it); a
server that is idle between its steps for longer than the steps take.
"""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import plain
from deepdraft.metrics import STEP_PARTS, Sample, output_tokens, steps_of, tokens_per_step
from deepdraft.stats import median

CODE = "D203"
NAME = "step_sources_disagree"
MAX_FRAC = 0.2
MIN_BUSY_FRAC = 0.5
"""Of the decode time: time between steps makes tokens a step by the clock too small, never too large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """Tokens a step of one point by each source; medians over its requests, None where a source is silent."""

    counted: float
    arrived: float | None
    clocked: float | None

    @property
    def contradicting(self) -> tuple[str, float] | None:
        """The source that contradicts the counts, and what it says."""
        arrived, clocked = self.arrived, self.clocked
        if arrived is not None and abs(self.counted - arrived) > MAX_FRAC * max(self.counted, arrived):
            return "the arrivals of the stream", arrived
        if clocked is not None and not MIN_BUSY_FRAC <= clocked / self.counted <= 1 + MAX_FRAC:
            return "its seconds a step over the client's seconds a token", clocked
        return None


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the point that is furthest off."""
    known = [(point, said) for point in case.points if (said := _sources(point)) is not None]
    bad = [(point, said, *off) for point, said in known if (off := said.contradicting) is not None]
    if not bad:
        return ()
    point, said, name, value = max(bad, key=lambda each: abs(each[1].counted / each[3] - 1))
    others = f"; {len(bad)} points disagree so" if len(bad) > 1 else ""
    all_said = (
        ("the server's counts", said.counted),
        ("bursts of arrivals", said.arrived),
        ("step time by the server's clock / token time by the client's", said.clocked),
    )
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="error",
            summary=f"At {point.name} the server's counts give {plain(said.counted, 3)} tokens a step, {name} "
            f"{plain(value, 3)}. One of them is not about decode steps{others}.",
            evidence=tuple(
                Evidence(name="tokens_per_step", value=each, unit="tokens", source=source)
                for source, each in all_said
                if each is not None
            ),
            remedy="Measure the server without a proxy between, and with one event a step (no stream interval).",
        ),
    )


def _sources(point: GuardedPoint) -> _Sources | None:
    counted, arrived, clocked = [], [], []
    for sample in point.point.samples:
        trace, acceptance = sample.request.trace, sample.request.acceptance
        length, steps = output_tokens(trace), steps_of(trace)
        told = tokens_per_step(acceptance, length) if acceptance is not None and length is not None else None
        by_clock = _clocked(sample) if point.point.concurrency == 1 else None
        is_seen = steps is not None and steps.tokens_per_step is not None and steps.doubt is None
        if told is None or not (is_seen or by_clock is not None):
            continue
        counted.append(told.value)
        if is_seen:
            assert steps is not None and steps.tokens_per_step is not None
            arrived.append(steps.tokens_per_step)
        if by_clock is not None:
            clocked.append(by_clock)
    if not counted:
        return None
    return _Sources(
        counted=median(counted),
        arrived=median(arrived) if arrived else None,
        clocked=median(clocked) if clocked else None,
    )


def _clocked(sample: Sample) -> float | None:
    """Step time by the server's clock over token time by the client's; None where one of them is not known."""
    parts = [sample.figures[f"step_{name}_s"] for name in STEP_PARTS if f"step_{name}_s" in sample.figures]
    tpot_s = sample.figures.get("tpot_s")
    return sum(parts) / tpot_s if parts and tpot_s else None
