"""Which decoding requests draft in a step, and their trees. What the target makes of them is `verification`'s.

Every request with use and room for drafts gets a tree, and its decode row becomes a part to verify: the drafts behind
the bonus token, the tree's mask and depths (a chain needs neither), the logits of all rows.

Nobody is preempted for drafts. Room for them is what is free or evictable; where that is short the tree is smaller,
or there is none; and after the step `PageLedger.trim` takes it back.

Where acceptance is simulated the trees are spine first, so that the chain that is to be accepted is there.
"""

from __future__ import annotations

import time

import torch

from deepdraft.errors import UsageError
from deepdraft.infer.drafters.drafter import Drafter, DraftRequest
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.page_ledger import PageLedger
from deepdraft.infer.sequence import Part, Sequence
from deepdraft.infer.settings import SpeculationSettings
from deepdraft.infer.tree.build import build_tree
from deepdraft.infer.tree.draft_tree import DraftTree
from deepdraft.infer.tree.marginals import Marginals
from deepdraft.infer.verification import Drafted


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

    def draft(self, parts: tuple[Part, ...]) -> Drafted:
        """The decode parts of a step with trees, where there is use and room for them."""
        started_s = time.monotonic()
        budgets = {part.sequence: budget for part in parts if (budget := self._budget(part.sequence))}
        requests = [self._request(sequence) for sequence in budgets]
        with_room_s = time.monotonic()
        proposed = self._propose(requests) if requests else ()
        proposed_s = time.monotonic()
        trees = {
            sequence: self._tree(request, candidates, budget)
            for (sequence, budget), request, candidates in zip(budgets.items(), requests, proposed, strict=True)
        }
        found = tuple(trees.get(part.sequence) for part in parts)
        verified = tuple(_to_verify(part, tree) if tree else part for part, tree in zip(parts, found, strict=True))
        draft_s = proposed_s - with_room_s
        return Drafted(parts=verified, trees=found, draft_s=draft_s, build_s=time.monotonic() - started_s - draft_s)

    def _propose(self, requests: list[DraftRequest]) -> tuple[Marginals, ...]:
        with torch.inference_mode():
            return self._drafter.draft(requests, self._pool, self._attention, top_k=self._settings.tree_top_k)

    def _tree(self, request: DraftRequest, candidates: Marginals, budget: int) -> DraftTree | None:
        settings = self._settings
        tree = build_tree(
            request.token_ids[-1],
            candidates,
            budget=budget,
            is_spine_first=settings.is_spine_first or settings.simulate_acceptance_len is not None,
            max_depth=request.max_draft_len,
        )
        return tree if tree.num_nodes else None

    def _budget(self, sequence: Sequence) -> int:
        """Nodes its tree may have; 0: it decodes plainly. Its pages have room for them and for the drafter's rows."""
        if sequence.max_draft_len < 1:
            return 0
        start, scratch_len = sequence.page_table.num_tokens, self._drafter.scratch_len
        wanted = max(1 + self._settings.tree_budget, scratch_len)
        num_rows = self._ledger.stretch(sequence, start + wanted) - start
        return min(self._settings.tree_budget, num_rows - 1) if num_rows >= scratch_len else 0

    def _request(self, sequence: Sequence) -> DraftRequest:
        return DraftRequest(
            token_ids=sequence.token_ids,
            page_table=sequence.page_table,
            max_draft_len=min(sequence.max_draft_len, self._drafter.draft_len),
            temperature=sequence.request.sampling.temperature,
            seed=sequence.seed,
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
