"""The best tree that a budget allows: best-first over the products of a drafter's marginals.

The surrogate: a drafted path u is accepted with probability q(u), the product of its tokens' marginals. Under it the
expected accepted length of a tree is the sum of q over its nodes, so the `budget` likeliest paths are the best tree;
they are one, for no path is likelier than its beginning (Ringel and Romano, arXiv 2604.12989, propositions 1 and 2).
A heap finds them in falling order of q: each path is offered by its next likelier sibling, or by its parent where it
is the likeliest child. At most two offers a node, no path twice.

Equal paths are taken in the order of their ranks (a path's tokens as places among the candidates of their depth), so
the tree is a function of the marginals alone. Nodes are in the order in which they were taken, so the first b nodes
are the tree of budget b.

Spine first: the likeliest token of every depth goes in before all else, then best-first as above with what is left of
the budget. Such a tree accepts at least what the chain of the same drafts and length accepts, whatever the target
says, and its accepted rows mostly lie in place. It is the best of the trees that hold the spine; its first b nodes
are again the spine-first tree of budget b, which below the spine's length is a chain.
"""

from __future__ import annotations

import math
from heapq import heappop, heappush

from deepdraft.infer.tree.draft_tree import DraftTree
from deepdraft.infer.tree.marginals import Marginals


def build_tree(
    bonus_token_id: int,
    candidates: Marginals,
    *,
    budget: int,
    is_spine_first: bool = False,
    max_depth: int | None = None,
) -> DraftTree:
    """At most `budget` nodes behind the bonus token, none deeper than `max_depth`; with one candidate for each depth
    a chain. Fewer nodes where the candidates run out; what has -inf is never drafted.

    Raises ValueError for a budget or a max_depth below 0.
    """
    if budget < 0 or (max_depth is not None and max_depth < 0):
        raise ValueError(f"budget and max_depth must be 0 or more: {budget}, {max_depth}")
    log_probs: list[list[float]] = candidates.log_probs[:max_depth].tolist()
    candidate_ids: list[list[int]] = candidates.token_ids[:max_depth].tolist()
    token_ids, parents = [bonus_token_id], [-1]
    scores = [0.0]  # log q of each node's path
    ranks: list[tuple[int, ...]] = [()]  # of each node's path; as many as the node is deep
    heap: list[tuple[float, tuple[int, ...], int, float]] = []  # what may come next: (order, ranks, parent, score)

    def offer(parent: int, rank: int) -> None:
        depth = len(ranks[parent])  # the parent's, which is the child's row
        if depth == len(log_probs) or rank == len(log_probs[depth]):
            return
        # From the parent's score, not from the sibling's: no rounding adds up.
        score = scores[parent] + log_probs[depth][rank]
        if not score > -math.inf:
            return
        path = (*ranks[parent], rank)
        is_urgent = is_spine_first and not any(path)
        heappush(heap, (-math.inf if is_urgent else -score, path, parent, score))

    offer(0, 0)
    while heap and len(parents) <= budget:
        _, path, parent, score = heappop(heap)
        node, depth, rank = len(parents), len(path), path[-1]
        token_ids.append(candidate_ids[depth - 1][rank])
        parents.append(parent)
        scores.append(score)
        ranks.append(path)
        offer(parent, rank + 1)
        offer(node, 0)
    return DraftTree(tuple(token_ids), tuple(parents), tuple(map(len, ranks)), tuple(scores))
