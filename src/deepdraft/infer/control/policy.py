"""Which requests draft in a step, and how many nodes of their trees are verified.

    plan     before drafting: who drafts, by what their last trees gave
    cut      after drafting: how much of each tree is worth its rows
    observe  after the step: what it took and gave

Both decisions ask one question: does it commit more tokens a second? Let the rate be the best that is known to be
had, by plain steps or by rounds. Drafts are worth what they are expected to give less rate x the seconds they add
(Dinkelbach's form of the best ratio of tokens to seconds; the cost-aware stop of CaDDTree, arXiv 2606.01813, is its
case of one request whose rounds are all alike). A step is one pass: the nodes of all requests compete for its rows,
and its requests share the drafter's pass.

What is below break-even is tried again now and then, and what costs are not known is learned; `purse` says how much
may be lost by that. Most of it is seen without verifying anything: a request's output doesn't depend on drafts, so
what would have been accepted of a tree follows from the tokens that came after it. Such a tree is *watched*; it costs
the drafter's pass alone. A drafter that takes next to nothing (prompt lookup) is asked at every step, and its trees
are weighed one by one, whatever the last ones gave.
"""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.infer.control.acceptance import Drafts, Outlook
from deepdraft.infer.control.books import NUM_LEARNING_ROUNDS, Books
from deepdraft.infer.control.costs import RowCosts
from deepdraft.infer.control.cutting import cut_trees
from deepdraft.infer.control.decision import Decision, Reason, SpeculationMode
from deepdraft.infer.control.plan import EXPLORING, PASSING, Decoding, Outcome, Plan, Standing, alike, num_kv_tokens
from deepdraft.infer.control.weighing import Weighing
from deepdraft.infer.control.worth import Worth

NUM_LEARNING_STEPS = 2
"""Plain steps that make their cost known, for each size class of batch and context."""
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
"""And where nobody drafts, so that nothing new is seen of drafts; fewer where a draft costs little."""
WEIGH_FREE_EVERY_STEPS = 64
"""And where everybody is asked in any case, and each tree weighed."""
CHEAP_DRAFT_FRAC = 0.1
"""Of a plain step: what that is."""
FREE_DRAFT_FRAC = 0.05
"""Of a plain step: a drafter that takes less than this, proposing something, is asked at every step. Where it
proposes nothing, which is where it can't be worth asking, it takes a fraction of that."""
STAY_FREE_FRAC = 0.1
"""And one that is goes on being asked below this."""
_NUM_RATES = 2


class Policy:
    """Of one engine.

    Its own cost in an engine with one request, where passes leave little of it in the caches (one core of an AMD EPYC
    without AVX-512, medians): 30 us for a plan that stands and 30 to 70 us for cutting; 0.5 to 0.7 ms for weighing
    anew and 0.1 to 0.4 ms for what was noted since. Called in a loop each takes a third to a fifth of that.
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
        self.can_watch = can_watch and mode == "auto"
        self.books = Books(draft_len=draft_len, tree_budget=tree_budget)
        self._tree_budget = tree_budget
        self._min_nodes = min_nodes
        self._standing = Standing()
        self._has_free_drafts = False
        """At the last weighing."""

    def plan(self, requests: Sequence[Decoding]) -> Plan:
        """Who drafts in a step of these requests."""
        if self.mode != "auto":
            return alike(requests, self.mode, drafts=self.mode == "always")
        standing = self._standing.of(requests)
        if standing is not None:
            return standing
        self.books.take_in()
        num_requests, kv_tokens = len(requests), num_kv_tokens(requests)
        costs = self.books.costs.forward(num_requests, kv_tokens)
        if costs is None or self.books.costs.num_plain(num_requests, kv_tokens) < NUM_LEARNING_STEPS:
            return alike(requests, "learning")
        able = [place for place, request in enumerate(requests) if request.can_draft]
        if not able:
            return alike(requests, "ending")
        knows_rounds = self.books.costs.num_drafts >= NUM_LEARNING_ROUNDS and costs.knows_drafts
        if knows_rounds and self.books.acceptance.is_known:
            plan = self._weigh(tuple(requests), able, costs)
            self._standing = Standing(plan, self._num_standing(plan, self._draft_s(1, kv_tokens) / costs.plain_s) - 1)
            return plan
        return self._learn(tuple(requests), able, costs)

    def cut(self, plan: Plan, drafts: Sequence[Drafts | None]) -> Plan:
        """With the number of first nodes of each request's tree to verify (0: it is decoded plainly), and what that
        makes of the decisions. None: it was not asked, or had no room."""
        found = cut_trees(plan, drafts, self.books, min_nodes=self._min_nodes)
        if any(each.reason in EXPLORING for each in found.decisions):
            self._standing = Standing()
        return found

    def observe(self, plan: Plan, outcomes: Sequence[Outcome], *, seconds: float, draft_s: float) -> None:
        """The step took `seconds`, of which `draft_s` went into drafting and building trees."""
        if self.mode == "auto":
            self.books.note(plan, outcomes, seconds=seconds, draft_s=draft_s)

    def observe_watched(self, request_id: str, context_len: int, drafts: Drafts, accepted_len: int) -> None:
        """Of a tree that was drafted at that context and not verified so much would have been accepted, as the tokens
        that came since tell. The request has not ended."""
        if self.mode == "auto":
            self.books.note_watched(request_id, context_len, drafts, accepted_len)

    def forget(self, request_id: str) -> None:
        """The request ended."""
        self.books.forget(request_id)

    # --- planning

    def _learn(self, requests: tuple[Decoding, ...], able: list[int], costs: RowCosts) -> Plan:
        """One request drafts, the others decode: twice unasked, from then on when there is something saved."""
        rate = len(requests) / costs.plain_s
        place = max(able, key=lambda each: self._credit_s(requests[each]))
        is_due = self.books.num_learning_rounds < NUM_LEARNING_ROUNDS or self._credit_s(requests[place]) >= 0
        return Plan(
            requests=requests,
            decisions=tuple(Decision(reason="learning" if each.can_draft else "ending") for each in requests),
            drafting=tuple(is_due and each == place for each in range(len(requests))),
            rate_tok_s=rate,
            base_s=costs.plain_s,
            draft_s=self._draft_s(1, requests[place].context_len),
            costs=costs,
            is_whole=self.books.num_learning_rounds == 0,
        )

    def _weigh(self, requests: tuple[Decoding, ...], able: list[int], costs: RowCosts) -> Plan:
        mean_kv_tokens = num_kv_tokens(requests) // len(requests)
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
        is_whole = bool(chosen) or self.books.num_probes % 2 == 1
        is_refresh = bool(chosen) and self._is_plain_due(weighing, requests, rate)
        probing = None if is_refresh else self._probing(weighing, requests, able, chosen, rate, is_whole=is_whole)
        is_free = self._is_free(weighing.drafting_s(len(able)) / weighing.costs.plain_s)
        watching = None
        if probing is None and not is_refresh and not is_free:
            watching = self._watching(weighing, requests, able, chosen)
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
            (self.books.stopped.discard if place in chosen else self.books.stopped.add)(request.request_id)
        asked = {*able} if is_free else {*chosen, probing, watching}
        drafting = tuple(not is_refresh and place in asked for place in range(len(requests)))
        return Plan(
            requests=requests,
            decisions=tuple(decisions),
            drafting=drafting,
            rate_tok_s=rate,
            draft_s=weighing.drafting_s(sum(drafting)),
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
        if not left and self.books.num_steps_since_whole < WHOLE_REFRESH_STEPS:
            return None
        place = max(left or able, key=lambda each: self._credit_s(requests[each]))
        forced, base = weighing.forced(place, rate, is_whole=is_whole), chosen.get(place)
        loss_s = forced.rows_s - forced.gain / rate
        loss_s += weighing.added_draft_s(len(chosen)) if base is None else base.gain / rate - base.rows_s
        if self.books.num_probes < NUM_YOUNG_PROBES:
            loss_s = min(loss_s, MAX_YOUNG_LOSS_STEPS * weighing.costs.plain_s)
        request = requests[place]
        return place if self.books.probing.can_afford(request.request_id, request.context_len, loss_s) else None

    def _watching(
        self, weighing: Weighing, requests: tuple[Decoding, ...], able: list[int], chosen: dict[int, Worth]
    ) -> int | None:
        """Of the requests below break-even the one that saved most for watching, if that is enough for a draft."""
        left = [place for place in able if place not in chosen]
        if not left or not self.can_watch:
            return None

        def credit_s(place: int) -> float:
            return self.books.watching.credit_s(requests[place].request_id, requests[place].context_len)

        place = max(left, key=credit_s)
        request, loss_s = requests[place], weighing.added_draft_s(len(chosen))
        return place if self.books.watching.can_afford(request.request_id, request.context_len, loss_s) else None

    def _is_free(self, draft_frac: float) -> bool:
        """Of a step in which everybody drafts, which takes that share of a plain one longer."""
        self._has_free_drafts = draft_frac < (STAY_FREE_FRAC if self._has_free_drafts else FREE_DRAFT_FRAC)
        return self._has_free_drafts

    def _num_standing(self, plan: Plan, draft_frac: float) -> int:
        """Steps that a plan stands for; a draft for one request takes that share of a plain step.

        What is done to find out is done once. Where everybody is asked, that is when a tree is there to be verified.
        """
        if self._has_free_drafts and any(plan.drafting):
            return WEIGH_FREE_EVERY_STEPS
        if any(each.reason in PASSING for each in plan.decisions):
            return 1
        is_brief = any(plan.drafting) or draft_frac < CHEAP_DRAFT_FRAC
        return WEIGH_EVERY_STEPS if is_brief else WEIGH_PLAIN_EVERY_STEPS

    def _draft_s(self, num_drafting: int, kv_tokens: int) -> float:
        return self.books.costs.draft_s(num_drafting, kv_tokens) or 0.0

    def _is_plain_due(self, weighing: Weighing, requests: tuple[Decoding, ...], rate: float) -> bool:
        if self.books.num_steps_since_plain < PLAIN_REFRESH_STEPS:
            return False
        loss_s = (weighing.costs.plain_s - len(requests) / rate) / len(requests)
        return all(self._credit_s(request) >= loss_s for request in requests)

    def _outlook(self, request: Decoding) -> Outlook:
        return self.books.acceptance.outlook(request.request_id, request.context_len)

    def _margin_frac(self, request: Decoding) -> float:
        own_frac = RETURN_FRAC if request.request_id in self.books.stopped else STAY_FRAC
        return own_frac + self.books.optimism.margin_frac(request.request_id, request.context_len)

    def _credit_s(self, request: Decoding) -> float:
        return self.books.probing.credit_s(request.request_id, request.context_len)
