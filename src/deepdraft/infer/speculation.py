"""Which decoding requests draft in a step, and their trees. What the target makes of them is `verification`'s.

Who of those with use for drafts is to draft says `control.policy`. It gets a tree, built once with the full budget
and cut to the first nodes that are worth their rows (the first b nodes of a tree are the tree of budget b), and its
decode row becomes a part to verify: the drafts behind the bonus token, the tree's mask and depths (a chain needs
neither), the logits of all rows. A tree of which nothing is worth it is dropped.

Nobody is preempted for drafts. Room for them is what is free or evictable; where that is short the tree is smaller,
or there is none; and after the step `PageLedger.trim` takes it back.

A tree that is drafted and not verified is watched: what would have been accepted follows from the tokens that come.

Where acceptance is simulated the trees are spine first, so that the chain that is to be accepted is there; the policy
is told how likely it was made, and learns nothing of what comes of it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace

from deepdraft.errors import UsageError
from deepdraft.infer.control.acceptance import NO_DRAFTS, Drafts
from deepdraft.infer.control.plan import Decoding, Outcome, Plan
from deepdraft.infer.control.policy import Policy
from deepdraft.infer.drafters.drafter import Drafter, DraftRequest
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.page_ledger import PageLedger
from deepdraft.infer.sequence import Part, Sequence
from deepdraft.infer.settings import SpeculationSettings
from deepdraft.infer.tree.build import build_tree
from deepdraft.infer.tree.draft_tree import DraftTree
from deepdraft.infer.tree.marginals import Marginals
from deepdraft.infer.tree.walk import would_accept
from deepdraft.infer.verification import Chosen, Drafted


@dataclass(frozen=True, slots=True, eq=False)
class _Watched:
    """A tree that was not verified."""

    tree: DraftTree
    drafts: Drafts
    context_len: int
    num_tokens: int
    """Of the request when it was drafted; the last of them is the tree's bonus token."""


class Speculator:
    """A drafter, and the rules by which its proposals become trees."""

    def __init__(
        self,
        drafter: Drafter,
        settings: SpeculationSettings,
        *,
        ledger: PageLedger,
        pool: PagePool,
        attention: AttentionBackend,
    ) -> None:
        """Raises UsageError for a simulated acceptance length beyond what the trees can hold."""
        longest = 1 + min(drafter.draft_len, settings.tree_budget)
        if (settings.simulate_acceptance_len or 1) > longest:
            raise UsageError(
                f"an acceptance length of {settings.simulate_acceptance_len:g} can't be simulated: with drafts of "
                f"{drafter.draft_len} tokens and trees of {settings.tree_budget} a round commits {longest} at most",
                hint="lower --simulate-acceptance-len, or raise --tree-budget up to the drafter's length",
            )
        self._drafter = drafter
        self._settings = settings
        self._ledger = ledger
        self._pool = pool
        self._attention = attention
        self.policy = Policy(
            settings.mode,
            draft_len=drafter.draft_len,
            tree_budget=settings.tree_budget,
            min_nodes=max(1, math.ceil((settings.simulate_acceptance_len or 1) - 1)),
            can_watch=settings.simulate_acceptance_len is None,
        )
        self._watched: dict[Sequence, list[_Watched]] = {}

    def draft(self, parts: tuple[Part, ...]) -> Drafted:
        """The decode parts of a step with trees, where that pays and there is use and room for them."""
        started_s = time.monotonic()
        plan = self.policy.plan([_decoding(part) for part in parts])
        planned_s = time.monotonic()
        if not any(plan.drafting):
            return _plain(parts, plan, build_s=planned_s - started_s)
        asked = [
            part.sequence
            for part, is_asked in zip(parts, plan.drafting, strict=True)
            if is_asked and self._has_scratch(part.sequence)
        ]
        requests = [self._request(sequence) for sequence in asked]
        with_scratch_s = time.monotonic()
        proposed = self._drafter.draft(requests, self._pool, self._attention, top_k=self._settings.tree_top_k)
        proposed_s = time.monotonic()
        trees = {
            sequence: self._tree(request, candidates) if candidates.draft_len else None
            for sequence, request, candidates in zip(asked, requests, proposed, strict=True)
        }
        built = [trees.get(part.sequence) for part in parts]
        drafts = tuple(
            self._drafts(part.sequence, tree) if tree else NO_DRAFTS if part.sequence in trees else None
            for part, tree in zip(parts, built, strict=True)
        )
        plan = self.policy.cut(plan, drafts)
        if self.policy.can_watch and not self._drafter.is_calibrated:
            self._watch(parts, built, drafts, plan)
        cut, plan = self._with_room(parts, built, plan)
        ended_s = time.monotonic()
        return Drafted(
            parts=tuple(_to_verify(part, tree) if tree else part for part, tree in zip(parts, cut, strict=True)),
            trees=cut,
            draft_s=proposed_s - with_scratch_s,
            build_s=ended_s - proposed_s + with_scratch_s - started_s,
            speculation_s=ended_s - planned_s,
            plan=plan,
            drafts=drafts,
        )

    def observe(self, drafted: Drafted, chosen: Iterable[Chosen], seconds: float) -> None:
        """What came of a step that `draft` began, which took so long in all."""
        if drafted.plan is None:
            return
        outcomes = [
            Outcome(drafts=drafts, num_nodes=tree.num_nodes if tree else 0, accepted_len=len(tokens.path) - 1)
            for drafts, tree, tokens in zip(drafted.drafts, drafted.trees, chosen, strict=True)
        ]
        self.policy.observe(drafted.plan, outcomes, seconds=seconds, draft_s=drafted.speculation_s)
        for part in drafted.parts:
            if part.sequence in self._watched:
                self._look_at(part.sequence)

    def forget(self, sequence: Sequence) -> None:
        """The request ended, after `observe` of its last step."""
        self._watched.pop(sequence, None)
        self.policy.forget(sequence.request.request_id)

    def _watch(
        self,
        parts: tuple[Part, ...],
        built: list[DraftTree | None],
        drafts: tuple[Drafts | None, ...],
        plan: Plan,
    ) -> None:
        """Keep the trees of which nothing is verified."""
        for part, tree, drafted, num_nodes in zip(parts, built, drafts, plan.num_nodes, strict=True):
            if tree is None or drafted is None or num_nodes or not tree.num_nodes:
                continue
            watched = _Watched(tree, drafted, part.start, len(part.sequence.token_ids))
            self._watched.setdefault(part.sequence, []).append(watched)

    def _look_at(self, sequence: Sequence) -> None:
        """Tell of those watched trees that the request's tokens have left."""
        left = []
        for each in self._watched[sequence]:
            accepted_len = would_accept(each.tree, sequence.token_ids[each.num_tokens :])
            if accepted_len is None:
                left.append(each)
            else:
                request_id = sequence.request.request_id
                self.policy.observe_watched(request_id, each.context_len, each.drafts, accepted_len)
        if left:
            self._watched[sequence] = left
        else:
            del self._watched[sequence]

    def _tree(self, request: DraftRequest, candidates: Marginals) -> DraftTree:
        settings = self._settings
        return build_tree(
            request.token_ids[-1],
            candidates,
            budget=settings.tree_budget,
            is_spine_first=settings.is_spine_first or settings.simulate_acceptance_len is not None,
            max_depth=request.max_draft_len,
        )

    def _drafts(self, sequence: Sequence, tree: DraftTree) -> Drafts:
        """The tree as the policy sees it."""
        simulated_len = self._settings.simulate_acceptance_len
        is_cut = sequence.max_draft_len < self._drafter.draft_len
        if simulated_len is None:
            probs = [math.exp(score) for score in tree.log_probs[1:]]
            return Drafts(
                path_probs=probs, depths=tree.depths[1:], is_cut=is_cut, is_calibrated=self._drafter.is_calibrated
            )
        spine = [node == depth for node, depth in enumerate(tree.depths)]
        probs = [min(1.0, max(0.0, simulated_len - depth)) * on for depth, on in zip(tree.depths, spine, strict=True)]
        return Drafts(path_probs=probs[1:], depths=tree.depths[1:], is_cut=is_cut, is_calibrated=True)

    def _has_scratch(self, sequence: Sequence) -> bool:
        """Whether its pages have room for the rows that drafting writes; what can be had is made so."""
        scratch_len, start = self._drafter.scratch_len, sequence.page_table.num_tokens
        return not scratch_len or self._ledger.stretch(sequence, start + scratch_len) >= start + scratch_len

    def _with_room(
        self, parts: tuple[Part, ...], built: list[DraftTree | None], plan: Plan
    ) -> tuple[tuple[DraftTree | None, ...], Plan]:
        """The first nodes of each tree that are to be verified and that there is room for, and the plan without those
        that there is none for."""
        if not any(plan.num_nodes):
            return (None,) * len(parts), plan
        cut, decisions, is_short = list[DraftTree | None](), list(plan.decisions), False
        for place, (part, tree, num_nodes) in enumerate(zip(parts, built, plan.num_nodes, strict=True)):
            if not tree or not num_nodes:
                cut.append(None)
                continue
            start = part.sequence.page_table.num_tokens
            room = self._ledger.stretch(part.sequence, start + 1 + num_nodes) - start - 1
            cut.append(tree.prefix(min(num_nodes, room)) if room > 0 else None)
            if room <= 0:
                is_short, decisions[place] = True, replace(decisions[place], reason="no_room")
        return tuple(cut), replace(plan, decisions=tuple(decisions)) if is_short else plan

    def _request(self, sequence: Sequence) -> DraftRequest:
        return DraftRequest(
            token_ids=sequence.token_ids,
            page_table=sequence.page_table,
            max_draft_len=min(sequence.max_draft_len, self._drafter.draft_len),
            temperature=sequence.request.sampling.temperature,
            seed=sequence.seed,
        )


def _plain(parts: tuple[Part, ...], plan: Plan, *, build_s: float) -> Drafted:
    """Where nobody drafts."""
    nothing = (None,) * len(parts)
    return Drafted(parts=parts, trees=nothing, build_s=build_s, plan=plan, drafts=nothing)


def _decoding(part: Part) -> Decoding:
    sequence = part.sequence
    return Decoding(
        request_id=sequence.request.request_id, context_len=part.start, can_draft=sequence.max_draft_len >= 1
    )


def _to_verify(part: Part, tree: DraftTree) -> Part:
    is_causal = tree.is_chain
    return Part(
        sequence=part.sequence,
        token_ids=tree.token_ids,
        num_logit_rows=len(tree.token_ids),
        tail_mask=None if is_causal else tree.ancestor_mask,
        depths=None if is_causal else tree.depths,
    )
