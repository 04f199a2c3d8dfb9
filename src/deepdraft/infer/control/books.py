"""What is remembered of steps: costs, what drafts gave, savings; of an engine, of a context, of a request.

Kept apart from `policy`, which decides by it. Nothing here decides anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.infer.control.acceptance import Acceptance, Drafts
from deepdraft.infer.control.costs import Costs
from deepdraft.infer.control.optimism import Optimism
from deepdraft.infer.control.plan import EXPLORING, Decoding, Outcome, Plan, num_kv_tokens
from deepdraft.infer.control.purse import WATCH_COST_FRAC, Purse

NUM_LEARNING_ROUNDS = 2
"""Rounds that make the cost of rounds known, once in an engine's life: of a whole tree, and of a quarter of one."""


class Books:
    """Of one engine: costs and what contexts gave stay, what is a request's goes with it."""

    def __init__(self, *, draft_len: int, tree_budget: int) -> None:
        self.costs = Costs()
        self.acceptance = Acceptance(draft_len=draft_len, tree_budget=tree_budget)
        self.optimism = Optimism()
        self.probing = Purse()
        """What requests saved for probes."""
        self.watching = Purse(WATCH_COST_FRAC)
        """And for drafts that are only watched."""
        self.stopped: set[str] = set()
        """Requests that drafting doesn't pay for, as it was decided last."""
        self.num_learning_rounds = 0
        self.num_probes = 0
        self.num_steps_since_plain = 0
        self.num_steps_since_whole = 0
        """Since a whole tree was verified."""
        self._tree_budget = tree_budget
        self._untaken: list[tuple[Plan, Sequence[Outcome], float, float]] = []
        """Steps as `note` had them."""

    def note(self, plan: Plan, outcomes: Sequence[Outcome], *, seconds: float, draft_s: float) -> None:
        """The step took `seconds`, of which `draft_s` went into drafting and building trees.

        It is taken in when something is to be decided by it. For most steps that is later, with others: many at once
        take a fraction of what they take one by one, between passes that leave nothing in the caches.
        """
        self._untaken.append((plan, outcomes, seconds, draft_s))
        if any(outcome.num_nodes and outcome.drafts and not outcome.drafts.is_calibrated for outcome in outcomes):
            self.take_in()

    def note_watched(self, request_id: str, context_len: int, drafts: Drafts, accepted_len: int) -> None:
        """Of a tree that was drafted at that context and not verified so much would have been accepted."""
        self.take_in()
        self.acceptance.observe_accepted(request_id, context_len, drafts, len(drafts.path_probs), accepted_len)

    def take_in(self) -> None:
        """All steps that were noted: before anything here is read."""
        untaken, self._untaken = self._untaken, []
        for step in untaken:
            self._take_in_step(*step)

    def forget(self, request_id: str) -> None:
        """The request ended."""
        self.take_in()
        self.acceptance.forget(request_id)
        self.probing.close(request_id)
        self.watching.close(request_id)
        self.optimism.forget(request_id)
        self.stopped.discard(request_id)

    @property
    def num_requests(self) -> int:
        """Requests that anything is remembered of."""
        return max(
            self.acceptance.num_requests, self.probing.num_requests, self.optimism.num_requests, len(self.stopped)
        )

    def _take_in_step(self, plan: Plan, outcomes: Sequence[Outcome], seconds: float, draft_s: float) -> None:
        num_rows = len(outcomes) + sum(outcome.num_nodes for outcome in outcomes)
        kv_tokens = num_kv_tokens(plan.requests)
        drafting = [request for request, outcome in zip(plan.requests, outcomes, strict=True) if outcome.drafts]
        self.costs.observe_forward(len(outcomes), num_rows, kv_tokens, seconds - (draft_s if drafting else 0.0))
        if drafting:
            self.costs.observe_draft(len(drafting), num_kv_tokens(drafting), draft_s)
        self.num_steps_since_plain = 0 if num_rows == len(outcomes) else self.num_steps_since_plain + 1
        is_whole = num_rows - len(outcomes) >= self._tree_budget
        self.num_steps_since_whole = 0 if is_whole else self.num_steps_since_whole + 1
        for request, outcome in zip(plan.requests, outcomes, strict=True):
            self._observe_drafts(request, outcome)
        self._settle(plan, outcomes, seconds)
        for request, decision in zip(plan.requests, plan.decisions, strict=True):
            if decision.reason == "watch":
                self.watching.spend(request.request_id, request.context_len, draft_s / max(1, len(drafting)))

    def _observe_drafts(self, request: Decoding, outcome: Outcome) -> None:
        if outcome.drafts is None:
            return
        key = request.request_id, request.context_len
        self.acceptance.observe_drafts(*key, outcome.drafts)
        if outcome.num_nodes:
            self.acceptance.observe_accepted(*key, outcome.drafts, outcome.num_nodes, outcome.accepted_len)

    def _compare(self, plan: Plan, outcomes: Sequence[Outcome], seconds: float) -> None:
        """What drafts gave that were to pay, with what was expected of them."""
        is_exploring = any(decision.reason in EXPLORING for decision in plan.decisions)
        for request, decision, outcome in zip(plan.requests, plan.decisions, outcomes, strict=True):
            key = request.request_id, request.context_len
            if plan.verify_s and decision.reason == "pays" and decision.expected_len and not is_exploring:
                tokens_frac = (1 + outcome.accepted_len) / decision.expected_len
                seconds_frac = seconds / (plan.draft_s + plan.verify_s)
                self.optimism.observe(*key, tokens_frac=tokens_frac, seconds_frac=seconds_frac)
            else:
                self.optimism.forgive(*key)

    def _settle(self, plan: Plan, outcomes: Sequence[Outcome], seconds: float) -> None:
        """All save; who found something out pays for what that took longer than the rest of the step."""
        for request in plan.requests:
            decode_s = seconds / len(plan.requests)
            self.probing.earn(request.request_id, request.context_len, decode_s)
            self.watching.earn(request.request_id, request.context_len, decode_s)
        if plan.rate_tok_s is None or plan.base_s is None:
            return
        self._compare(plan, outcomes, seconds)
        paying = [
            (request, outcome)
            for request, decision, outcome in zip(plan.requests, plan.decisions, outcomes, strict=True)
            if decision.reason in EXPLORING and (outcome.drafts is not None or decision.reason == "probe")
        ]
        if not paying:
            return
        if any(outcome.drafts is not None for _, outcome in paying):
            paying = [(request, outcome) for request, outcome in paying if outcome.drafts is not None]
            self.num_probes += 1
            if self.num_learning_rounds < NUM_LEARNING_ROUNDS:
                self.num_learning_rounds += any(outcome.num_nodes for _, outcome in paying)
                return
            won = sum(outcome.accepted_len for _, outcome in paying) - plan.base_gain
            loss_s = seconds - plan.base_s - won / plan.rate_tok_s
        else:
            loss_s = seconds - len(outcomes) / plan.rate_tok_s
        for request, _ in paying:
            self.probing.spend(request.request_id, request.context_len, loss_s / len(paying))
