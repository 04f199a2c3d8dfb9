"""What is decided about one step, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deepdraft.infer.control.acceptance import Drafts
from deepdraft.infer.control.costs import RowCosts
from deepdraft.infer.control.decision import Decision, Reason

EXPLORING: tuple[Reason, ...] = ("probe", "learning")
"""Reasons of what is done to find out, by verifying."""
PASSING: tuple[Reason, ...] = (*EXPLORING, "watch")
"""Reasons that hold for one step alone."""
WEIGHED: tuple[Reason, ...] = ("pays", "below_break_even")
"""Reasons of what drafts are weighed by, where there are any: by the last ones a request's drafts pay, or don't."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoding:
    """A request that decodes in a step."""

    request_id: str
    context_len: int
    can_draft: bool = True
    """Whether there is use for drafts: not for the last token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Of one step; of each of its requests in order."""

    requests: tuple[Decoding, ...]
    decisions: tuple[Decision, ...]
    drafting: tuple[bool, ...]
    """Whether it is to draft."""
    num_nodes: tuple[int, ...] = ()
    """Of its tree that are to be verified; empty as long as nothing is drafted."""
    rate_tok_s: float | None = None
    """What drafts are held against; None: nothing is weighed."""
    draft_s: float = 0.0
    """Expected seconds of drafting."""
    verify_s: float | None = None
    """And, when trees are cut, of the pass; None: nothing is weighed, or nothing verified."""
    base_s: float | None = None
    """Expected seconds of the step without what is done to find out."""
    base_gain: float = 0.0
    """And draft tokens of those who do that."""
    costs: RowCosts | None = None
    is_whole: bool = False
    """What is drafted to find out is verified whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one request of a plan."""

    drafts: Drafts | None = None
    """Its tree, of 0 nodes where the drafter had nothing to propose; None: it was not asked."""
    num_nodes: int = 0
    """Of its tree that were verified; 0: it was decoded plainly."""
    accepted_len: int = 0


def num_kv_tokens(requests: Sequence[Decoding]) -> int:
    """Cached tokens of all of them."""
    return sum(request.context_len for request in requests)


def alike(requests: Sequence[Decoding], reason: Reason, *, drafts: bool = False) -> Plan:
    """Nothing is weighed."""
    return Plan(
        requests=tuple(requests),
        decisions=tuple(Decision(reason=reason if each.can_draft else "ending") for each in requests),
        drafting=tuple(drafts and each.can_draft for each in requests),
    )


def after_drafting(decision: Decision, is_asked: bool, drafts: Drafts | None, num_nodes: int) -> Decision:
    """What came of a decision: a request that was asked has a tree of which so many nodes are verified."""
    if not is_asked:
        return decision
    reason = decision.reason
    if num_nodes:
        reason = "pays" if reason in WEIGHED else reason
    elif drafts is None:
        reason = "no_room"
    elif reason != "watch" or not drafts.path_probs:
        reason = "too_unlikely" if drafts.path_probs else "nothing_drafted"
    return decision if reason == decision.reason else replace(decision, reason=reason)


class Standing:
    """A plan, for as long as it stands."""

    def __init__(self, plan: Plan | None = None, num_steps: int = 0) -> None:
        """For so many steps more."""
        self._plan = plan
        self._num_left = num_steps

    def of(self, requests: Sequence[Decoding]) -> Plan | None:
        """The same for the next step, if these are the same requests."""
        plan = self._plan
        if plan is None or not self._num_left or len(plan.requests) != len(requests):
            return None
        for before, now in zip(plan.requests, requests, strict=True):
            if before.request_id != now.request_id or before.can_draft != now.can_draft:
                return None
        self._num_left -= 1
        return replace(plan, requests=tuple(requests))
