"""A block or a tree larger than what is ever accepted.

What it sees: the share of steps that accept each depth, or drafts a step beside accepted drafts a step.
Why it matters: nodes that are never accepted are verified all the same; with mixtures of experts and many ranks a
verify step is far from free.
Evidence needed: counts at each depth (or a histogram), or drafted and accepted counts; at least 20 steps.
Remedy: as many draft tokens as are accepted in 5 % of the steps or more.
When it is wrong: another text than this one is accepted deeper.
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import acceptances, drafted_len, rates_by_depth
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import plain
from deepdraft.metrics.speculation import step_counts

CODE = "D212"
NAME = "draft_too_long"
RARE_FRAC = 0.05
MIN_STEPS = 20
MIN_WASTED = 2


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the point with the most depths that are hardly ever accepted."""
    is_tree = "tree" in (case.capabilities.speculation_method or "").lower()
    wasteful = [(point, *both) for point in case.points if (both := _useful(point, is_tree)) is not None]
    if not wasteful:
        return ()
    point, useful, drafted = max(wasteful, key=lambda each: each[2] - each[1])
    rates = rates_by_depth(point) or ()
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"At {point.name} drafts go {plain(drafted)} tokens deep, and those beyond depth {useful} are "
            "accepted in less than 5 % of the steps; they are verified all the same.",
            evidence=tuple(
                Evidence(name=f"accepted at depth {depth}", value=rate, unit="of steps", source=point.name)
                for depth, rate in enumerate(rates, start=1)
            ),
            remedy=f"Draft {max(useful, 1)} tokens: {case.say('draft_len')}.",
        ),
    )


def _useful(point: GuardedPoint, is_tree: bool) -> tuple[int, float] | None:
    """The deepest depth worth drafting, and the depth that is drafted (a chain's draft tokens; of a tree, whose nodes
    are more than its depth, the depths that are counted); None where nothing shows waste."""
    rates = rates_by_depth(point)
    num_steps = sum(step_counts(each).num_verify_steps or 0 for each in acceptances(point))
    if rates is None or num_steps < MIN_STEPS:
        return None
    drafted = float(len(rates)) if is_tree else drafted_len(point) or float(len(rates))
    useful = sum(1 for rate in rates if rate >= RARE_FRAC)
    return (useful, drafted) if drafted - useful >= MIN_WASTED else None
