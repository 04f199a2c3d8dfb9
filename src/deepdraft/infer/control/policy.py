"""Which requests draft in a step, and how many nodes of their trees are verified.

    plan       before drafting: who drafts, by what their last trees gave
    num_nodes  after drafting: how much of each tree is worth its rows
    observe    after the step: what it took and gave

Both decisions ask one question: does it commit more tokens a second? Let the rate be the best that is known to be
had, by plain steps or by rounds. Drafts are worth what they are expected to give less rate x the seconds they add
(Dinkelbach's form of the best ratio of tokens to seconds; the cost-aware stop of CaDDTree, arXiv 2606.01813, is its
case of one request whose rounds are all alike). A step is one pass: the nodes of all requests compete for its rows,
and its requests share the drafter's pass.

What is below break-even is tried again now and then, and what costs are not known is learned; `purse` says how much
may be lost by that. Most of it is seen without verifying anything: a request's output doesn't depend on drafts, so
what would have been accepted of a tree follows from the tokens that came after it. Such a tree is *watched*; it costs
the drafter's pass alone, which for prompt lookup is next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.infer.control.acceptance import Acceptance, Drafts, Outlook
from deepdraft.infer.control.costs import Costs, RowCosts
from deepdraft.infer.control.decision import Decision, Reason, SpeculationMode
from deepdraft.infer.control.optimism import Optimism
from deepdraft.infer.control.plan import EXPLORING, Decoding, Outcome, Plan, Standing, alike
from deepdraft.infer.control.purse import WATCH_COST_FRAC, Purse
from deepdraft.infer.control.weighing import Weighing
from deepdraft.infer.control.worth import Worth, cut

NUM_LEARNING_STEPS = 2
"""Plain steps that make their cost known, for each size class of batch and context."""
NUM_LEARNING_ROUNDS = 2
"""Rounds that make theirs known, once in an engine's life: of a whole tree, and of a quarter of one."""
STAY_FRAC = 0.02
"""A request that drafts goes on while a round is expected to be faster than plain steps by this."""
RETURN_FRAC = 0.04
"""And one that does not begins where it is by this."""
PLAIN_REFRESH_STEPS = 128
"""After so many steps without a plain one the cost of a plain one is looked at again, if the purse allows."""
WHOLE_REFRESH_STEPS = 32
"""And that of a whole tree, where less of it is verified: what once came dear by accident would stay so."""
NUM_YOUNG_PROBES = 4
MAX_YOUNG_LOSS_STEPS = 8.0
"""An engine's first probes are expected to lose no more than so many plain steps: costs seen once or twice may be
those of a moment, and are not to keep drafting off for as long as they would."""
WEIGH_EVERY_STEPS = 4
"""As long as the same requests decode, what was decided stands for so many steps."""
WEIGH_PLAIN_EVERY_STEPS = 16
"""And where nobody drafts, so that nothing new is seen of drafts; fewer where a draft costs next to nothing."""
CHEAP_DRAFT_FRAC = 0.1
"""Of a plain step: what that is."""
_NUM_RATES = 2
_LEARNING_PARTS = 4


class Policy:
    """Of one engine: costs and what contexts gave stay, what is a request's goes with it.

    Its own cost, measured on one core: 20 us a plain step and 50 us a round of one request (medians), and about 25 us
    more a round for each further request.
    """

    def __init__(
        self,
        mode: SpeculationMode,
        *,
        draft_len: int,
        tree_budget: int,
        min_nodes: int = 1,
        can_watch: bool = True,
    ) -> None:
        """`min_nodes`: what a tree that is verified has at least, where it has them (a simulated acceptance length
        needs its chain). `can_watch`: whether output tells what would have been accepted."""
        self.mode = mode
        self.costs = Costs()
        self.acceptance = Acceptance(draft_len=draft_len, tree_budget=tree_budget)
        self.purse = Purse()
        self._watch_purse = Purse(WATCH_COST_FRAC)
        self.can_watch = can_watch and mode == "auto"
        self._tree_budget = tree_budget
        self._min_nodes = min_nodes
        self._num_learning_rounds = 0
        self._num_steps_since_plain = 0
        self._num_steps_since_whole = 0
        self._num_probes = 0
        self._optimism = Optimism()
        self._standing = Standing()
        self._stopped: set[str] = set()
        """Requests that drafting doesn't pay for."""

    def plan(self, requests: Sequence[Decoding]) -> Plan:
        """Who drafts in a step of these requests."""
        if self.mode != "auto":
            return alike(requests, self.mode, drafts=self.mode == "always")
        standing = self._standing.of(requests)
        if standing is not None:
            return standing
        num_requests, kv_tokens = len(requests), _kv_tokens(requests)
        costs = self.costs.forward(num_requests, kv_tokens)
        if costs is None or self.costs.num_plain(num_requests, kv_tokens) < NUM_LEARNING_STEPS:
            return alike(requests, "learning")
        able = [place for place, request in enumerate(requests) if request.can_draft]
        if not able:
            return alike(requests, "ending")
        knows_rounds = self.costs.num_drafts >= NUM_LEARNING_ROUNDS and costs.knows_drafts
        if knows_rounds and self.acceptance.is_known:
            plan = self._weigh(tuple(requests), able, costs)
            is_brief = any(plan.drafting) or self._draft_s(1, kv_tokens) < CHEAP_DRAFT_FRAC * costs.plain_s
            num_steps = WEIGH_EVERY_STEPS if is_brief else WEIGH_PLAIN_EVERY_STEPS
            self._standing = Standing(plan, num_steps - 1)
            return plan
        return self._learn(tuple(requests), able, costs)

    def num_nodes(self, plan: Plan, drafts: Sequence[Drafts | None]) -> tuple[int, ...]:
        """How many first nodes of each request's tree to verify; 0: it is decoded plainly. None: it has no tree."""
        sizes = [0 if each is None else len(each.path_probs) for each in drafts]
        if plan.rate_tok_s is None or plan.costs is None:
            return tuple(sizes)
        taken = [0] * len(sizes)
        gains: dict[int, list[float]] = {}
        for place, each in enumerate(drafts):
            if each is not None and sizes[place]:
                request = plan.requests[place]
                gains[place] = self.acceptance.gains(request.request_id, request.context_len, each)
        weighed = {place: found for place, found in gains.items() if plan.decisions[place].reason == "pays"}
        kept = cut(list(weighed.values()), plan.costs, plan.rate_tok_s)
        for place, num_nodes in zip(weighed, kept, strict=True):
            taken[place] = max(num_nodes, self._min_nodes) if num_nodes else 0
        for place in gains.keys() - weighed.keys():
            if plan.decisions[place].reason == "watch":
                continue
            taken[place] = max(self._num_explored(plan, gains[place]), self._min_nodes)
        return tuple(min(*pair) for pair in zip(taken, sizes, strict=True))

    def observe(self, plan: Plan, outcomes: Sequence[Outcome], *, seconds: float, draft_s: float) -> None:
        """The step took `seconds`, of which `draft_s` went into drafting and building trees."""
        if self.mode != "auto":
            return
        num_rows = len(outcomes) + sum(outcome.num_nodes for outcome in outcomes)
        kv_tokens = _kv_tokens(plan.requests)
        drafting = [request for request, outcome in zip(plan.requests, outcomes, strict=True) if outcome.drafts]
        self.costs.observe_forward(len(outcomes), num_rows, kv_tokens, seconds - (draft_s if drafting else 0.0))
        if drafting:
            self.costs.observe_draft(len(drafting), _kv_tokens(drafting), draft_s)
        self._num_steps_since_plain = 0 if num_rows == len(outcomes) else self._num_steps_since_plain + 1
        is_whole = num_rows - len(outcomes) >= self._tree_budget
        self._num_steps_since_whole = 0 if is_whole else self._num_steps_since_whole + 1
        for request, outcome in zip(plan.requests, outcomes, strict=True):
            self._observe_drafts(request, outcome)
        self._settle(plan, outcomes, seconds)
        for request, decision in zip(plan.requests, plan.decisions, strict=True):
            if decision.reason == "watch":
                self._watch_purse.spend(request.request_id, request.context_len, draft_s / max(1, len(drafting)))

    def observe_watched(self, request_id: str, context_len: int, drafts: Drafts, accepted_len: int) -> None:
        """Of a tree that was drafted at that context and not verified so much would have been accepted, as the tokens
        that came since tell. The request has not ended."""
        if self.mode == "auto":
            self.acceptance.observe_accepted(request_id, context_len, drafts, len(drafts.path_probs), accepted_len)

    def forget(self, request_id: str) -> None:
        """The request ended."""
        self.acceptance.forget(request_id)
        self.purse.close(request_id)
        self._watch_purse.close(request_id)
        self._optimism.forget(request_id)
        self._stopped.discard(request_id)

    @property
    def num_requests(self) -> int:
        """Requests that anything is remembered of."""
        return max(
            self.acceptance.num_requests, self.purse.num_requests, self._optimism.num_requests, len(self._stopped)
        )

    # --- planning

    def _learn(self, requests: tuple[Decoding, ...], able: list[int], costs: RowCosts) -> Plan:
        """One request drafts, the others decode: twice unasked, from then on when there is something saved."""
        rate = len(requests) / costs.plain_s
        place = max(able, key=lambda each: self._credit_s(requests[each]))
        is_due = self._num_learning_rounds < NUM_LEARNING_ROUNDS or self._credit_s(requests[place]) >= 0
        return Plan(
            requests=requests,
            decisions=tuple(Decision(reason="learning" if each.can_draft else "ending") for each in requests),
            drafting=tuple(is_due and each == place for each in range(len(requests))),
            rate_tok_s=rate,
            base_s=costs.plain_s,
            costs=costs,
            is_whole=self._num_learning_rounds == 0,
        )

    def _weigh(self, requests: tuple[Decoding, ...], able: list[int], costs: RowCosts) -> Plan:
        mean_kv_tokens = _kv_tokens(requests) // len(requests)
        weighing = Weighing(
            costs,
            lambda number: self._draft_s(number, number * mean_kv_tokens),
            {place: self._outlook(requests[place]) for place in able},
            num_requests=len(requests),
            budget=self._tree_budget,
        )
        rate, chosen = weighing.plain_rate_tok_s, dict[int, Worth]()
        margins = {place: self._margin_frac(requests[place]) for place in able}
        for _ in range(_NUM_RATES):
            found = weighing.drafters(rate, margins)
            better = weighing.tokens(found.values()) / weighing.seconds(found.values())
            if not found or better <= rate:
                break
            rate, chosen, margins = better, found, {}
        return self._decided(weighing, requests, able, chosen, rate)

    def _decided(
        self,
        weighing: Weighing,
        requests: tuple[Decoding, ...],
        able: list[int],
        chosen: dict[int, Worth],
        rate: float,
    ) -> Plan:
        """The plan where `chosen` pay, with what is done beside that to find out."""
        is_whole = bool(chosen) or self._num_probes % 2 == 1
        is_refresh = bool(chosen) and self._is_plain_due(weighing, requests, rate)
        probing = None if is_refresh else self._probing(weighing, requests, able, chosen, rate, is_whole=is_whole)
        watching = self._watching(weighing, requests, able, chosen) if probing is None and not is_refresh else None
        decisions = []
        for place, request in enumerate(requests):
            reason: Reason = "pays" if place in chosen else "below_break_even"
            if not request.can_draft:
                decisions.append(Decision(reason="ending"))
                continue
            each = chosen.get(place) or weighing.forced(place, rate)
            if is_refresh or place == probing:
                reason = "probe"
            elif place == watching:
                reason = "watch"
            decisions.append(
                Decision(
                    reason=reason,
                    break_even_len=weighing.break_even_len(each, len(chosen.keys() | {place})),
                    expected_len=1 + each.gain,
                )
            )
            (self._stopped.discard if place in chosen else self._stopped.add)(request.request_id)
        return Plan(
            requests=requests,
            decisions=tuple(decisions),
            drafting=tuple(
                not is_refresh and (place in chosen or place in (probing, watching)) for place in range(len(requests))
            ),
            rate_tok_s=rate,
            base_s=weighing.seconds(chosen.values()),
            base_gain=chosen[probing].gain if probing in chosen else 0.0,
            costs=weighing.costs,
            is_whole=is_whole,
        )

    def _probing(
        self,
        weighing: Weighing,
        requests: tuple[Decoding, ...],
        able: list[int],
        chosen: dict[int, Worth],
        rate: float,
        *,
        is_whole: bool,
    ) -> int | None:
        """Of the requests below break-even the one that saved most, if that is enough to try again; where all pay,
        one whose whole tree is due."""
        left = [place for place in able if place not in chosen]
        if not left and self._num_steps_since_whole < WHOLE_REFRESH_STEPS:
            return None
        place = max(left or able, key=lambda each: self._credit_s(requests[each]))
        forced, base = weighing.forced(place, rate, is_whole=is_whole), chosen.get(place)
        loss_s = forced.rows_s - forced.gain / rate
        loss_s += weighing.added_draft_s(len(chosen)) if base is None else base.gain / rate - base.rows_s
        if self._num_probes < NUM_YOUNG_PROBES:
            loss_s = min(loss_s, MAX_YOUNG_LOSS_STEPS * weighing.costs.plain_s)
        request = requests[place]
        return place if self.purse.can_afford(request.request_id, request.context_len, loss_s) else None

    def _watching(
        self, weighing: Weighing, requests: tuple[Decoding, ...], able: list[int], chosen: dict[int, Worth]
    ) -> int | None:
        """Of the requests below break-even the one that saved most for watching, if that is enough for a draft."""
        left = [place for place in able if place not in chosen]
        if not left or not self.can_watch:
            return None

        def credit_s(place: int) -> float:
            return self._watch_purse.credit_s(requests[place].request_id, requests[place].context_len)

        place = max(left, key=credit_s)
        request, loss_s = requests[place], weighing.added_draft_s(len(chosen))
        return place if self._watch_purse.can_afford(request.request_id, request.context_len, loss_s) else None

    def _draft_s(self, num_drafting: int, kv_tokens: int) -> float:
        return self.costs.draft_s(num_drafting, kv_tokens) or 0.0

    def _is_plain_due(self, weighing: Weighing, requests: tuple[Decoding, ...], rate: float) -> bool:
        if self._num_steps_since_plain < PLAIN_REFRESH_STEPS:
            return False
        loss_s = (weighing.costs.plain_s - len(requests) / rate) / len(requests)
        return all(self._credit_s(request) >= loss_s for request in requests)

    def _outlook(self, request: Decoding) -> Outlook:
        return self.acceptance.outlook(request.request_id, request.context_len)

    def _margin_frac(self, request: Decoding) -> float:
        own_frac = RETURN_FRAC if request.request_id in self._stopped else STAY_FRAC
        return own_frac + self._optimism.margin_frac(request.request_id, request.context_len)

    def _credit_s(self, request: Decoding) -> float:
        return self.purse.credit_s(request.request_id, request.context_len)

    # --- after drafting and after the step

    def _num_explored(self, plan: Plan, gains: Sequence[float]) -> int:
        """Nodes of a tree that was drafted to find out."""
        assert plan.rate_tok_s is not None and plan.costs is not None
        if plan.is_whole:
            return len(gains)
        if self._num_learning_rounds < NUM_LEARNING_ROUNDS:
            return -(-len(gains) // _LEARNING_PARTS)
        (num_nodes,) = cut([gains], plan.costs, plan.rate_tok_s)
        return max(1, num_nodes)

    def _observe_drafts(self, request: Decoding, outcome: Outcome) -> None:
        if outcome.drafts is None:
            return
        key = request.request_id, request.context_len
        self.acceptance.observe_drafts(*key, outcome.drafts)
        if outcome.num_nodes:
            self.acceptance.observe_accepted(*key, outcome.drafts, outcome.num_nodes, outcome.accepted_len)

    def _compare(self, plan: Plan, outcomes: Sequence[Outcome], seconds_frac: float) -> None:
        """What drafts gave that were to pay, with what was expected of them."""
        is_exploring = any(decision.reason in EXPLORING for decision in plan.decisions)
        for request, decision, outcome in zip(plan.requests, plan.decisions, outcomes, strict=True):
            key = request.request_id, request.context_len
            if decision.reason == "pays" and decision.expected_len and not is_exploring:
                tokens_frac = (1 + outcome.accepted_len) / decision.expected_len
                self._optimism.observe(*key, tokens_frac=tokens_frac, seconds_frac=seconds_frac)
            else:
                self._optimism.forgive(*key)

    def _settle(self, plan: Plan, outcomes: Sequence[Outcome], seconds: float) -> None:
        """All save; who found something out pays for what that took longer than the rest of the step."""
        for request in plan.requests:
            decode_s = seconds / len(plan.requests)
            self.purse.earn(request.request_id, request.context_len, decode_s)
            self._watch_purse.earn(request.request_id, request.context_len, decode_s)
        if plan.rate_tok_s is None or plan.base_s is None:
            return
        self._compare(plan, outcomes, seconds / plan.base_s)
        paying = [
            (request, outcome)
            for request, decision, outcome in zip(plan.requests, plan.decisions, outcomes, strict=True)
            if decision.reason in EXPLORING and (outcome.drafts is not None or decision.reason == "probe")
        ]
        if not paying:
            return
        if any(outcome.drafts is not None for _, outcome in paying):
            paying = [(request, outcome) for request, outcome in paying if outcome.drafts is not None]
            self._num_probes += 1
            if self._num_learning_rounds < NUM_LEARNING_ROUNDS:
                self._num_learning_rounds += 1
                return
            won = sum(outcome.accepted_len for _, outcome in paying) - plan.base_gain
            loss_s = seconds - plan.base_s - won / plan.rate_tok_s
        else:
            loss_s = seconds - len(outcomes) / plan.rate_tok_s
        for request, _ in paying:
            self.purse.spend(request.request_id, request.context_len, loss_s / len(paying))


def _kv_tokens(requests: Sequence[Decoding]) -> int:
    return sum(request.context_len for request in requests)
