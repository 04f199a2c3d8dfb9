"""What was drafted at a point and how often the draft at depth 1, 2, ... was accepted, over all of its requests."""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.metrics import Point, acceptance_rate_by_depth, request_acceptance
from deepdraft.metrics.speculation import step_counts
from deepdraft.records import Acceptance


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthRates:
    """rates[D]: the share of verify steps that accepted the draft at depth D + 1."""

    rates: tuple[float, ...]
    num_steps: int


def depth_rates(point: Point) -> DepthRates | None:
    """The rates of a point, each request weighted by its verify steps; None without the counts for it."""
    counted = [
        (rates, steps)
        for acceptance in _acceptances(point)
        if (rates := acceptance_rate_by_depth(acceptance)) and (steps := step_counts(acceptance).num_verify_steps)
    ]
    if not counted:
        return None
    total = sum(steps for _, steps in counted)
    depth = max(len(rates) for rates, _ in counted)
    accepted = [sum(rates[place] * steps for rates, steps in counted if place < len(rates)) for place in range(depth)]
    while len(accepted) > 1 and accepted[-1] == 0 and accepted[-2] == 0:
        accepted.pop()  # depths that nothing ever reached say no more than the first of them
    return DepthRates(rates=tuple(each / total for each in accepted), num_steps=total)


def nodes_per_step(point: Point) -> float | None:
    """Draft tokens (of a tree: its nodes) a verify step, over all requests of a point; None without the counts."""
    counted = [
        (each.num_draft_tokens, steps)
        for each in _acceptances(point)
        if each.num_draft_tokens is not None and (steps := step_counts(each).num_verify_steps)
    ]
    return sum(nodes for nodes, _ in counted) / sum(steps for _, steps in counted) if counted else None


def _acceptances(point: Point) -> list[Acceptance]:
    """Of its requests; of a whole trial where only that is known; of a reported point as its source gives it."""
    if point.reported is not None:
        return [point.reported.acceptance] if point.reported.acceptance is not None else []
    found: list[Acceptance] = []
    for trial in point.trials:
        own = [request_acceptance(trial, request) for request in trial.measured if request.role != "first"]
        known = [each for each in own if each is not None]
        if not known and trial.trial is not None and trial.trial.acceptance is not None:
            known = [trial.trial.acceptance]
        found += known
    return found
