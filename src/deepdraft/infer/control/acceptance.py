"""What drafts give: the drafter's own probabilities of its paths, corrected by what became of them.

A best-first tree's expected accepted length is the sum of its nodes' path probabilities, if these are right. They are
right for no drafter: so for each depth the ratio of drafts accepted to drafts expected is kept, with decay, for each
request; a request of few rounds leans on those that had about as much context before it, and these on all. The deeper
a depth, the fewer saw it: where nothing is known it takes the ratio of the depth above.

Beside it the last few trees themselves, since what a round may give before anything is drafted is no mean: prompt
lookup that finds nothing nine times out of ten, and eight right tokens the tenth time, pays. A request's first rounds
are also what later requests of its context begin with; a long one that drafts well speaks for itself alone.

Shape letters: L depths, B nodes of the largest tree, M trees.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

REQUEST_MEMORY_FRAC = 0.9
"""What each round of a request leaves of the weight of those before it: about ten rounds count."""
SHARED_MEMORY_FRAC = 0.97
"""And of several requests: about thirty."""
NUM_REQUEST_TREES = 6
NUM_SHARED_TREES = 8
NUM_FIRST_ROUNDS = 8
"""Rounds of a request that speak for others of its context."""
_TRUST_TOKENS = 2.0
"""Expected drafts at a depth that weigh as much as what others say of it."""
_TRUST_TREES = 1.5
"""And trees."""
_MAX_RATIO = 4.0
_LEAST_SHARE = 0.05
"""What weighs less in an outlook is left out."""


@dataclass(frozen=True, slots=True, eq=False)
class Drafts:
    """A best-first tree as far as it matters here, nodes in their order, the root left out."""

    path_probs: Sequence[float]
    """Of each node: how likely the drafter held its path from the root."""
    depths: Sequence[int]
    """Of each node, 1 or more."""
    is_cut: bool = False
    """The end of the request kept it small: it says nothing of other trees."""
    is_calibrated: bool = False
    """`path_probs` are right as they are, and nothing is learned of them: the drafter counts what comes of its
    drafts, or acceptance is simulated and they say what was decided."""


NO_DRAFTS = Drafts(path_probs=(), depths=())
"""The drafter had nothing to propose."""


@dataclass(frozen=True, slots=True, eq=False)
class Outlook:
    """What the next tree of a request may be like: trees that were, corrected, each with a weight."""

    gains: Floats
    """[M, B + 1]: expected tokens of the first 0, 1, ... nodes."""
    weights: Floats
    """[M], 1 in sum."""


class Acceptance:
    """Of one engine: what each request's drafts gave, and those of requests before it."""

    def __init__(self, *, draft_len: int, tree_budget: int) -> None:
        self._shape = draft_len, tree_budget
        self._all = _Evidence(self._shape, SHARED_MEMORY_FRAC, NUM_SHARED_TREES)
        self._contexts: dict[int, _Evidence] = {}
        self._requests: dict[str, _Evidence] = {}
        self._outlooks: dict[str, tuple[int, Outlook]] = {}
        """As long as nothing new was seen: by request, with the class of its context."""

    @property
    def is_known(self) -> bool:
        """Whether anything was ever drafted."""
        return self._all.num_rounds > 0

    @property
    def num_requests(self) -> int:
        """Requests remembered."""
        return len(self._requests)

    def ratios(self, request_id: str, context_len: int) -> list[float]:
        """Drafts accepted to drafts expected at depth 1, 2, ..., as it is taken for this request."""
        found = self._all.own_ratios()
        context, own = self._contexts.get(_octave(context_len)), self._requests.get(request_id)
        if context is not None:
            found = context.ratios(found)
        return found if own is None else own.ratios(found)

    def gains(self, request_id: str, context_len: int, drafts: Drafts) -> list[float]:
        """Expected tokens of each node of a tree."""
        if drafts.is_calibrated:
            return list(drafts.path_probs)
        ratios = self.ratios(request_id, context_len)
        return [
            min(1.0, prob * ratios[depth - 1]) for prob, depth in zip(drafts.path_probs, drafts.depths, strict=True)
        ]

    def outlook(self, request_id: str, context_len: int) -> Outlook:
        """Of the request's next tree. Raises ValueError where nothing was ever drafted."""
        octave, (known_octave, known) = _octave(context_len), self._outlooks.get(request_id, (None, None))
        if known is not None and known_octave == octave:
            return known
        if not self.is_known:
            raise ValueError("nothing was drafted yet")
        found = self._new_outlook(request_id, context_len)
        self._outlooks[request_id] = octave, found
        return found

    def observe_drafts(self, request_id: str, context_len: int, drafts: Drafts) -> None:
        """A tree was built, whatever becomes of it; an empty one too."""
        if drafts.is_cut:
            return
        self._outlooks.clear()
        own = self._own(request_id)
        for evidence in self._speaking(own, context_len, is_first=own.num_rounds < NUM_FIRST_ROUNDS):
            evidence.observe_tree(drafts)

    def observe_accepted(
        self, request_id: str, context_len: int, drafts: Drafts, num_nodes: int, accepted_len: int
    ) -> None:
        """The first `num_nodes` of a tree were verified, after `observe_drafts` of it."""
        if drafts.is_calibrated:
            return
        self._outlooks.clear()
        expected = [0.0] * self._shape[0]
        for prob, depth in zip(drafts.path_probs[:num_nodes], drafts.depths[:num_nodes], strict=True):
            expected[depth - 1] += prob
        own = self._own(request_id)
        for evidence in self._speaking(own, context_len, is_first=own.num_rounds <= NUM_FIRST_ROUNDS):
            evidence.observe_accepted(expected, accepted_len)

    def forget(self, request_id: str) -> None:
        """The request ended; what it showed of its context stays."""
        self._requests.pop(request_id, None)
        self._outlooks.pop(request_id, None)

    def _new_outlook(self, request_id: str, context_len: int) -> Outlook:
        weighted = self._weighted(self._requests.get(request_id), self._contexts.get(_octave(context_len)))
        probs = np.concatenate([evidence.probs for evidence, _ in weighted])
        depths = np.concatenate([evidence.depths for evidence, _ in weighted])
        ratios = np.array(self.ratios(request_id, context_len))
        gains = np.zeros((probs.shape[1] + 1, len(probs)))
        np.minimum(1.0, probs * ratios.take(depths - 1), out=gains[1:].T)
        # Down the columns, which is many times faster here than along the rows.
        gains.cumsum(axis=0, out=gains)
        total = sum(share for _, share in weighted)
        weights = [np.full(evidence.num_trees, share / evidence.num_trees / total) for evidence, share in weighted]
        return Outlook(gains.T, np.concatenate(weights))

    def _weighted(self, own: _Evidence | None, context: _Evidence | None) -> list[tuple[_Evidence, float]]:
        """Whose trees count, and how much in all."""
        weighted, left = [], 1.0
        for evidence in (own, context):
            if evidence is not None and evidence.num_trees:
                share = left * evidence.num_trees / (evidence.num_trees + _TRUST_TREES)
                weighted.append((evidence, share))
                left -= share
        if left > _LEAST_SHARE or not weighted:
            weighted.append((self._all, left))
        return weighted

    def _own(self, request_id: str) -> _Evidence:
        if request_id not in self._requests:
            self._requests[request_id] = _Evidence(self._shape, REQUEST_MEMORY_FRAC, NUM_REQUEST_TREES)
        return self._requests[request_id]

    def _speaking(self, own: _Evidence, context_len: int, *, is_first: bool) -> list[_Evidence]:
        """What an observation of a request goes into."""
        if not is_first:
            return [own]
        octave = _octave(context_len)
        if octave not in self._contexts:
            self._contexts[octave] = _Evidence(self._shape, SHARED_MEMORY_FRAC, NUM_SHARED_TREES)
        return [own, self._contexts[octave], self._all]


class _Evidence:
    """Decayed sums by depth, and the last trees, of some rounds."""

    def __init__(self, shape: tuple[int, int], memory_frac: float, max_trees: int) -> None:
        draft_len, tree_budget = shape
        self._memory_frac = memory_frac
        self._accepted, self._expected = [0.0] * draft_len, [0.0] * draft_len
        self._probs = np.zeros((max_trees, tree_budget))
        self._depths = np.ones((max_trees, tree_budget), dtype=np.intp)
        self.num_rounds = 0

    @property
    def num_trees(self) -> int:
        """Trees that are remembered."""
        return min(self.num_rounds, len(self._probs))

    @property
    def probs(self) -> Floats:
        """[M, B], 0 where a tree was smaller."""
        return self._probs[: self.num_trees]

    @property
    def depths(self) -> NDArray[np.intp]:
        """[M, B]"""
        return self._depths[: self.num_trees]

    def observe_tree(self, drafts: Drafts) -> None:
        place, num_nodes = self.num_rounds % len(self._probs), len(drafts.path_probs)
        self._probs[place, :num_nodes] = drafts.path_probs
        self._probs[place, num_nodes:] = 0.0
        self._depths[place, :num_nodes] = drafts.depths
        self.num_rounds += 1

    def observe_accepted(self, expected: Sequence[float], accepted_len: int) -> None:
        for place, of_depth in enumerate(expected):
            if of_depth:
                self._expected[place] = self._memory_frac * self._expected[place] + of_depth
                self._accepted[place] = self._memory_frac * self._accepted[place] + (place < accepted_len)

    def ratios(self, prior: Sequence[float]) -> list[float]:
        """By depth, leaning on `prior`."""
        return [
            min(_MAX_RATIO, (accepted + _TRUST_TOKENS * before) / (expected + _TRUST_TOKENS))
            for accepted, expected, before in zip(self._accepted, self._expected, prior, strict=True)
        ]

    def own_ratios(self) -> list[float]:
        """With nothing to lean on but the depth above."""
        found, above = [], 1.0
        for accepted, expected in zip(self._accepted, self._expected, strict=True):
            above = min(_MAX_RATIO, (accepted + _TRUST_TOKENS * above) / (expected + _TRUST_TOKENS))
            found.append(above)
        return found


def _octave(context_len: int) -> int:
    return context_len.bit_length()
