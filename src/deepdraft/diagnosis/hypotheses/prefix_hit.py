"""The prompt, or most of it, was already in the prefix cache: prefill is skipped and TTFT measures the cache."""

from __future__ import annotations

from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.finding import Hypothesis, Support
from deepdraft.diagnosis.words import capital


def prefix_hit(case: Case, point: GuardedPoint) -> Hypothesis:
    """Support depends on what is known of cached tokens at the point."""
    support: Support
    if point.is_hit:
        support, why = "strong", "its prompts are known to have been cached"
    elif point.point.reported is not None and point.point.reported.is_cold:
        support, why = "weak", "the source says that its prompts were cold"
    else:
        support, why = (
            "some",
            "nothing shows that its prompts were cold, and only skipped work is faster than the floor",
        )
    return Hypothesis(
        name="prefix_hit",
        support=support,
        why=why,
        prediction="With cold prompts TTFT rises above the floor; the server tells cached tokens with each answer.",
        experiment=f"{capital(case.say('cold'))}; {case.say('cached_told')} shows the cached tokens.",
    )
