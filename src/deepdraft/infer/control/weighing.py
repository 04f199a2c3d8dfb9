"""The choices of one step: which of its requests draft at a given rate, and what such a step takes and gives.

Requests share the drafter's pass, and all drafts share the verify pass. What is a request's own is what it adds to
both. Decisions over time (hysteresis, probes) are `policy`'s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from deepdraft.infer.control.acceptance import Outlook
from deepdraft.infer.control.costs import RowCosts
from deepdraft.infer.control.worth import Worth, rows_s, worth

DraftSeconds = Callable[[int], float]


class Weighing:
    """Of a step with some requests that can draft."""

    def __init__(
        self,
        costs: RowCosts,
        draft_s: DraftSeconds,
        outlooks: Mapping[int, Outlook],
        *,
        num_requests: int,
        budget: int,
    ) -> None:
        """`draft_s`: seconds of drafting for so many requests. `outlooks`: of those that can draft, by place."""
        self.costs = costs
        self.plain_rate_tok_s = num_requests / costs.plain_s
        self._draft_s = draft_s
        self._outlooks = outlooks
        self._num_requests = num_requests
        self._budget = budget
        self._known_draft_s: dict[int, float] = {0: 0.0}
        self._known_forced: dict[tuple[int, float, bool], Worth] = {}
        self._rows_s = rows_s(costs, budget, (len(outlooks) - 1) * budget / 2)

    def drafters(self, rate_tok_s: float, margins: Mapping[int, float]) -> dict[int, Worth]:
        """The requests whose drafts are worth more than they take at that rate, each with what they are worth; empty
        where all of them together don't pay for the drafter's pass. `margins`: the share of its tokens by which a
        request's round has to be better than just as good; none where absent."""
        own_draft_s = self.added_draft_s(len(self._outlooks) - 1)
        found, value = dict[int, Worth](), 0.0
        for place, outlook in self._outlooks.items():
            each = worth(outlook, self._rows_s, rate_tok_s)
            margin = margins.get(place, 0.0)
            won = (1 + each.gain) / (1 + margin) - 1 - rate_tok_s * each.rows_s
            if won > rate_tok_s * own_draft_s:
                found[place] = each
                value += won
        return found if value > rate_tok_s * self.drafting_s(len(found)) else {}

    def forced(self, place: int, rate_tok_s: float, *, is_whole: bool = False) -> Worth:
        """A request's drafts where it drafts in any case: with one node at least, or with all."""
        key = place, rate_tok_s, is_whole
        if key not in self._known_forced:
            min_nodes = self._budget if is_whole else 1
            self._known_forced[key] = worth(self._outlooks[place], self._rows_s, rate_tok_s, min_nodes=min_nodes)
        return self._known_forced[key]

    def added_draft_s(self, num_drafting: int) -> float:
        """Drafting seconds of one request more."""
        return self.drafting_s(num_drafting + 1) - self.drafting_s(num_drafting)

    def seconds(self, drafters: Iterable[Worth]) -> float:
        """Expected of the step in which these draft."""
        drafting = list(drafters)
        return self.costs.plain_s + self.drafting_s(len(drafting)) + sum(each.rows_s for each in drafting)

    def tokens(self, drafters: Iterable[Worth]) -> float:
        """Expected to be committed by it."""
        return self._num_requests + sum(each.gain for each in drafters)

    def break_even_len(self, each: Worth, num_drafting: int) -> float:
        """Tokens that a request has to commit a round to be worth its rows and its part of the drafter's pass, one of
        `num_drafting`, at the rate of plain steps."""
        draft_s = self.drafting_s(num_drafting) / num_drafting
        return 1 + self.plain_rate_tok_s * (each.rows_s + draft_s)

    def drafting_s(self, num_drafting: int) -> float:
        """Of so many requests."""
        if num_drafting not in self._known_draft_s:
            self._known_draft_s[num_drafting] = self._draft_s(num_drafting)
        return self._known_draft_s[num_drafting]
