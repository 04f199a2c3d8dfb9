"""Cases for trees: candidates with ties, dropped tokens and tokens that come again at other depths, trees of any
shape, and the plain definitions to hold the real ones against.

A path is a tuple of tokens, or of ranks where it says so; the bonus token is not part of it.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from hypothesis import strategies as st

from deepdraft.infer.tree.draft_tree import DraftTree
from deepdraft.infer.tree.marginals import Marginals

BONUS = 7
Path = tuple[int, ...]


def candidates(log_probs: Sequence[Sequence[float]], token_ids: Sequence[Sequence[int]] | None = None) -> Marginals:
    """Rows best first; without token ids rank r of depth d is token 10 d + r."""
    found = np.array(log_probs, dtype=np.float32).reshape(len(log_probs), len(log_probs[0]) if log_probs else 0)
    if token_ids is None:
        token_ids = [[10 * depth + rank for rank in range(found.shape[1])] for depth in range(1, len(found) + 1)]
    return Marginals(found, np.array(token_ids, dtype=np.int64).reshape(found.shape))


@st.composite
def any_candidates(draw: st.DrawFn, max_draft_len: int = 4, max_top_k: int = 4) -> Marginals:
    """Tenths, so that many paths tie or miss a tie by a rounding; a few at -inf; tokens of a small vocabulary."""
    draft_len, top_k = draw(st.integers(0, max_draft_len)), draw(st.integers(1, max_top_k))
    log_prob = st.integers(-30, 0).map(lambda tenths: tenths / 10) | st.just(-math.inf)
    rows = [draw(st.lists(log_prob, min_size=top_k, max_size=top_k)) for _ in range(draft_len)]
    token_ids = [draw(st.permutations(range(6)))[:top_k] for _ in range(draft_len)]
    return candidates([sorted(row, reverse=True) for row in rows], token_ids)


def random_candidates(draft_len: int, top_k: int, seed: int) -> Marginals:
    """As a drafter gives them: a softmax at each depth, cut to its likeliest."""
    logits = np.random.default_rng(seed).normal(scale=2, size=(draft_len, 4 * top_k))
    log_probs = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    token_ids = np.argsort(-log_probs, axis=1)[:, :top_k]
    return Marginals(np.take_along_axis(log_probs, token_ids, 1).astype(np.float32), token_ids)


@st.composite
def any_trees(draw: st.DrawFn, max_nodes: int = 12) -> DraftTree:
    """Of any shape, siblings with different tokens."""
    num_nodes = draw(st.integers(0, max_nodes))
    parents = [-1, *(draw(st.integers(0, node - 1)) for node in range(1, num_nodes + 1))]
    token_ids = [BONUS, *(parents[1 : node + 1].count(parents[node]) for node in range(1, num_nodes + 1))]
    return DraftTree.of(token_ids, parents)


def random_tree(num_nodes: int, seed: int) -> DraftTree:
    generator = random.Random(seed)
    parents = [-1, *(generator.randrange(max(0, node - 9), node) for node in range(1, num_nodes + 1))]
    return DraftTree.of(range(num_nodes + 1), parents)


def node_path(tree: DraftTree, node: int) -> Path:
    """The tokens from below the bonus token down to the node."""
    return () if node == 0 else (*node_path(tree, tree.parents[node]), tree.token_ids[node])


def node_paths(tree: DraftTree) -> list[Path]:
    """Of every node but the bonus token, in node order."""
    return [node_path(tree, node) for node in range(1, tree.num_nodes + 1)]


def ranked_paths(drafts: Marginals, max_depth: int | None = None) -> list[tuple[float, Path, Path]]:
    """Every path that may be drafted as (log q, ranks, tokens), by brute force, best first and ties by ranks."""
    log_probs, token_ids = drafts.log_probs[:max_depth].tolist(), drafts.token_ids[:max_depth].tolist()
    found = []
    for depth in range(1, len(log_probs) + 1):
        for ranks in itertools.product(range(len(log_probs[0])), repeat=depth):
            score = 0.0
            for row, rank in enumerate(ranks):
                score += log_probs[row][rank]
            if score > -math.inf:
                found.append((score, ranks, tuple(token_ids[row][rank] for row, rank in enumerate(ranks))))
    return sorted(found, key=lambda entry: (-entry[0], entry[1]))


def closed_sets(paths: Sequence[Path], size: int) -> Iterator[tuple[Path, ...]]:
    """Every tree of that many nodes."""
    for chosen in itertools.combinations(paths, size):
        members = {(), *chosen}
        if all(path[:-1] in members for path in chosen):
            yield chosen


def any_target(seed: int, vocab_size: int) -> Callable[[Path], int]:
    """A greedy target: a token for each path, the same whenever it is asked for."""
    return lambda path: random.Random(f"{seed} {path}").randrange(vocab_size)
