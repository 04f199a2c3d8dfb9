"""What drafting and verifying add to a step grows with the context.

What it sees: the time of a step with the drafter less the time of a plain decode step, at two lengths or more; where
the server tells what its steps consist of, the drafter's own pass, without a second run.
Why it matters: a drafter that reads its whole cache each round, or a verify kernel slower than the decode kernel,
turns speculation into a loss at depth even with the same acceptance.
Evidence needed: a run with and a run without the drafter, both with step times, at two lengths at least; or parts of
steps by the server's clock.
Remedy: a drafter window, fewer draft tokens, another verify kernel.
When it is wrong: the two runs differ in more than the drafter.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding, by_support
from deepdraft.diagnosis.hypotheses.drafter_rescan import drafter_rescan
from deepdraft.diagnosis.number import ms
from deepdraft.diagnosis.pairing import pairs

CODE = "D210"
NAME = "drafter_cost_grows"
MIN_GROWTH = 1.5
MIN_SHARE = 0.1
"""Of the plain step at the longest length: growth below it is noise."""


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: against the first baseline that has the steps, else by the server's own parts."""
    for baseline in case.baselines:
        both = pairs(case, baseline, "step_s")
        if len(both) < 2:
            continue
        first, last = both[0], both[-1]
        before, after = first.own_value - first.other_value, last.own_value - last.other_value
        if after < MIN_GROWTH * max(before, 0.0) or after - before < MIN_SHARE * last.other_value:
            continue
        return (
            Finding(
                code=CODE,
                name=NAME,
                severity="warning",
                summary=f"Drafting and verifying add {ms(before)} to a step at {first.own.name} and {ms(after)} at "
                f"{last.own.name} (plain steps: {ms(first.other_value)} and {ms(last.other_value)}).",
                evidence=tuple(
                    Evidence(
                        name="step with drafter - plain step",
                        value=pair.own_value - pair.other_value,
                        unit="s",
                        source=pair.own.name,
                    )
                    for pair in both
                ),
                remedy=f"Try {case.say('draft_window')}; {case.say('draft_len')}; {case.say('attention_backend')}.",
                hypotheses=by_support((drafter_rescan(case),)),
                worth=last.own_value / last.other_value,
            ),
        )
    return _by_parts(case)


def _by_parts(case: Case) -> tuple[Finding, ...]:
    """The drafter's own pass, at the first and the last length of the step curve where the server tells it."""
    known = [
        (point, draft_s, point.median("step_s"))
        for point in case.step_curve.points
        if (draft_s := point.median("step_draft_s")) is not None
    ]
    if len(known) < 2:
        return ()
    (first, before, _), (last, after, step_s) = known[0], known[-1]
    if step_s is None or after < MIN_GROWTH * before or after - before < MIN_SHARE * step_s:
        return ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"The drafter's own pass takes {ms(before)} of a step at {first.name} and {ms(after)} at "
            f"{last.name}, of {ms(step_s)} in all (by the server's clock).",
            evidence=tuple(
                Evidence(name="step_draft_s", value=draft_s, unit="s", source=point.name)
                for point, draft_s, _ in known
            ),
            remedy=f"Try {case.say('draft_window')}; {case.say('draft_len')}.",
            hypotheses=by_support((drafter_rescan(case),)),
            worth=step_s / (step_s - (after - before)),
        ),
    )
