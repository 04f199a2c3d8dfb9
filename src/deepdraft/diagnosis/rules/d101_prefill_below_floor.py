"""TTFT shorter than the prefill can take.

What it sees: time to first token below the prefill's operations at the device's arithmetic peak.
Why it matters: such a prefill was not done; the point is no measurement of prefill at that length.
Evidence needed: the model and the device's peak (or a prefill floor from expected times, five times too fast).
Remedy: measure with cold prompts; check the prompt's actual length.
When it is wrong: more devices than --tp says, or lower precision than the peak stands for.
"""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.hypotheses.prefix_hit import prefix_hit
from deepdraft.units import seconds_text

CODE = "D101"
NAME = "prefill_below_floor"


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the point furthest below."""
    below = case.impossible_prefills
    if not below:
        return ()
    point, floor_s = max(below, key=lambda each: each[1] / (each[0].median("ttft_s") or each[1]))
    ttft_s = point.median("ttft_s") or 0.0
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="error",
            summary=f"Impossible: TTFT is {seconds_text(ttft_s)} at {point.name}, and the prefill takes at least "
            f"{seconds_text(floor_s)} on this device. The prefill was skipped or shortened; TTFT there is "
            f"unusable{f' ({len(below)} points so)' if len(below) > 1 else ''}.",
            evidence=(
                Evidence(name="ttft_s", value=ttft_s, unit="s", source=point.name),
                Evidence(name="prefill_floor_s", value=floor_s, unit="s", source="operations / the device's peak"),
            ),
            remedy=f"Measure it again cold: {case.say('cold')}.",
            hypotheses=(prefix_hit(case, point),),
        ),
    )
