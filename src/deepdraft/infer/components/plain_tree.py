"""The draft tree in the plainest form: the peer of `tree`. A heap of tuples, as the published algorithm is written
down (DDTree, Ringel and Romano, arXiv 2604.12989, algorithm 1), without care for speed.

Shape letters: L depths, V vocabulary, K candidates of a depth.
"""

from __future__ import annotations

from heapq import heappop, heappush

from torch import Tensor


def plain_marginals(logits: Tensor, top_k: int) -> tuple[list[list[float]], list[list[int]]]:
    """Log-probabilities and tokens of the likeliest, best first: logits [L, V] to two lists [L][K]."""
    found = logits.float().log_softmax(dim=-1).topk(min(top_k, logits.shape[-1]))
    return found.values.tolist(), found.indices.tolist()


def plain_tree(
    bonus_token_id: int, log_probs: list[list[float]], token_ids: list[list[int]], budget: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Tokens and parents of at most `budget` nodes behind node 0, best first: what `build_tree` gives."""
    tokens, parents, scores = [bonus_token_id], [-1], [0.0]
    heap: list[tuple[float, tuple[int, ...], int]] = []
    if log_probs and log_probs[0]:
        heap = [(-log_probs[0][0], (0,), 0)]
    while heap and len(tokens) <= budget:
        negative, ranks, parent = heappop(heap)
        depth, rank, node = len(ranks), ranks[-1], len(tokens)
        tokens.append(token_ids[depth - 1][rank])
        parents.append(parent)
        scores.append(-negative)
        if rank + 1 < len(log_probs[depth - 1]):
            sibling = scores[parent] + log_probs[depth - 1][rank + 1]
            heappush(heap, (-sibling, (*ranks[:-1], rank + 1), parent))
        if depth < len(log_probs):
            heappush(heap, (-(scores[node] + log_probs[depth][0]), (*ranks, 0), node))
    return tuple(tokens), tuple(parents)
