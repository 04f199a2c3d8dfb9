"""The heap takes exactly the likeliest paths, one build serves every budget, and a spine never accepts less."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_case import (
    BONUS,
    Path,
    any_candidates,
    any_target,
    candidates,
    closed_sets,
    node_path,
    node_paths,
    random_candidates,
    ranked_paths,
)

from deepdraft.infer.tree.build import build_tree
from deepdraft.infer.tree.draft_tree import DraftTree
from deepdraft.infer.tree.marginals import Marginals
from deepdraft.infer.tree.walk import walk

ANY_DEPTH = st.none() | st.integers(0, 5)


def accepted_len(tree: DraftTree, seed: int) -> int:
    target = any_target(seed, vocab_size=6)
    return walk(tree, lambda node: target(node_path(tree, node))).accepted_len


@given(any_candidates(), st.integers(0, 40), ANY_DEPTH)
@settings(max_examples=300, deadline=None)
def test_the_heap_is_brute_force(drafts: Marginals, budget: int, max_depth: int | None) -> None:
    tree = build_tree(BONUS, drafts, budget=budget, max_depth=max_depth)
    assert tree.token_ids[0] == BONUS
    assert node_paths(tree) == [path for _, _, path in ranked_paths(drafts, max_depth)[:budget]]


@given(any_candidates(), st.integers(0, 40), ANY_DEPTH)
@settings(max_examples=200, deadline=None)
def test_spine_first_is_brute_force_behind_the_spine(drafts: Marginals, budget: int, max_depth: int | None) -> None:
    tree = build_tree(BONUS, drafts, budget=budget, max_depth=max_depth, is_spine_first=True)
    ranked = ranked_paths(drafts, max_depth)
    spine = sorted((path for _, ranks, path in ranked if not any(ranks)), key=len)
    assert node_paths(tree) == [*spine, *(path for _, ranks, path in ranked if any(ranks))][:budget]


@pytest.mark.parametrize("is_spine_first", [False, True])
@given(drafts=any_candidates(), budget=st.integers(0, 30))
@settings(deadline=None)
def test_a_prefix_is_the_tree_of_a_smaller_budget(is_spine_first: bool, drafts: Marginals, budget: int) -> None:
    largest = build_tree(BONUS, drafts, budget=30, is_spine_first=is_spine_first)
    smaller = build_tree(BONUS, drafts, budget=budget, is_spine_first=is_spine_first)
    first = largest.prefix(min(budget, largest.num_nodes))
    assert smaller == first and smaller.log_probs == first.log_probs


@given(any_candidates(), st.integers(0, 12), st.booleans())
@settings(deadline=None)
def test_what_is_built_is_a_tree(drafts: Marginals, budget: int, is_spine_first: bool) -> None:
    tree = build_tree(BONUS, drafts, budget=budget, is_spine_first=is_spine_first)
    assert tree == DraftTree.of(tree.token_ids, tree.parents)


@pytest.mark.parametrize("is_spine_first", [False, True])
def test_one_candidate_for_each_depth_is_a_chain(is_spine_first: bool) -> None:
    drafts = random_candidates(draft_len=7, top_k=1, seed=3)
    for budget in (0, 1, 4, 7, 20):
        tree = build_tree(BONUS, drafts, budget=budget, is_spine_first=is_spine_first)
        assert tree.is_chain
        assert tree.token_ids == (BONUS, *drafts.token_ids[:budget, 0].tolist())


def test_depth_one_is_drafted_by_the_first_row() -> None:
    tree = build_tree(BONUS, candidates([[-0.1, -5.0], [-0.2, -6.0], [-0.3, -7.0]]), budget=3)
    assert (tree.token_ids, tree.depths) == ((BONUS, 10, 20, 30), (0, 1, 2, 3))


def test_equal_paths_are_taken_by_rank() -> None:
    tree = build_tree(BONUS, candidates([[-1.0, -1.0], [0.0, 0.0]]), budget=6)
    assert node_paths(tree) == [(10,), (10, 20), (10, 21), (11,), (11, 20), (11, 21)]


@pytest.mark.parametrize("hole", [-math.inf, math.nan])
@pytest.mark.parametrize("is_spine_first", [False, True])
def test_what_has_no_probability_is_never_drafted(hole: float, is_spine_first: bool) -> None:
    drafts = candidates([[-0.5, hole, hole], [-0.1, -2.0, hole], [hole, hole, hole], [-0.1, -0.1, -0.1]])
    tree = build_tree(BONUS, drafts, budget=100, is_spine_first=is_spine_first)
    assert node_paths(tree) == [(10,), (10, 20), (10, 21)]


def test_the_same_marginals_give_the_same_tree() -> None:
    first, again = (build_tree(BONUS, random_candidates(9, 8, seed=1), budget=200) for _ in range(2))
    assert first == again and first.num_nodes == 200


@given(st.integers(0, 10_000), st.integers(0, 10), st.booleans())
@settings(max_examples=30, deadline=None)
def test_expected_accepted_len_is_the_sum_of_q(seed: int, budget: int, is_spine_first: bool) -> None:
    """Under the surrogate: every token drawn from the marginal of its depth, whatever came before (proposition 1)."""
    drafts = random_candidates(draft_len=3, top_k=3, seed=seed)
    tree = build_tree(BONUS, drafts, budget=budget, is_spine_first=is_spine_first)
    q = {path: math.exp(score) for score, _, path in ranked_paths(drafts)}
    expected = 0.0
    unlisted = -1  # any token that is no candidate
    for drawn in itertools.product(*[[*row, unlisted] for row in drafts.token_ids.tolist()]):
        probability = math.prod(_probability(drafts, depth, token_id) for depth, token_id in enumerate(drawn))
        taken = walk(tree, lambda node, drawn=drawn: (*drawn, unlisted)[tree.depths[node]])
        expected += probability * taken.accepted_len
    assert expected == pytest.approx(sum(q[path] for path in node_paths(tree)), abs=1e-6)
    assert expected == pytest.approx(sum(map(math.exp, tree.log_probs[1:])), abs=1e-5) and tree.log_probs[0] == 0


def _probability(drafts: Marginals, depth: int, token_id: int) -> float:
    row = dict(zip(drafts.token_ids[depth].tolist(), np.exp(drafts.log_probs[depth].astype(float)), strict=True))
    return float(row.get(token_id, 1 - sum(row.values())))


@pytest.mark.parametrize("budget", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_no_tree_of_the_budget_has_more_expected(budget: int, seed: int) -> None:
    """Proposition 2, against every tree there is; and the spine-first tree against every one that has the spine."""
    drafts = random_candidates(draft_len=3, top_k=2, seed=seed)
    q = {path: math.exp(score) for score, _, path in ranked_paths(drafts)}
    spine: set[Path] = {path for _, ranks, path in ranked_paths(drafts) if not any(ranks)}
    sums = {chosen: sum(q[path] for path in chosen) for chosen in closed_sets(list(q), budget)}
    best = build_tree(BONUS, drafts, budget=budget)
    assert sum(q[path] for path in node_paths(best)) == pytest.approx(max(sums.values()))
    if budget >= len(spine):
        spined = build_tree(BONUS, drafts, budget=budget, is_spine_first=True)
        with_spine = max(total for chosen, total in sums.items() if spine <= set(chosen))
        assert sum(q[path] for path in node_paths(spined)) == pytest.approx(with_spine)


@given(any_candidates(), st.integers(0, 20), st.integers(0, 10_000))
@settings(max_examples=200, deadline=None)
def test_spine_first_accepts_at_least_the_chain(drafts: Marginals, budget: int, seed: int) -> None:
    chain = build_tree(BONUS, Marginals(drafts.log_probs[:, :1], drafts.token_ids[:, :1]), budget=budget)
    tree = build_tree(BONUS, drafts, budget=budget, is_spine_first=True)
    assert accepted_len(tree, seed) >= accepted_len(chain, seed)


def test_best_first_alone_may_accept_less_than_the_chain() -> None:
    drafts = candidates([[-0.7, -0.7], [-0.7, -0.7]])
    target = (10, 20)
    trees = [build_tree(BONUS, drafts, budget=2, is_spine_first=is_spine_first) for is_spine_first in (False, True)]
    drafts_wide = candidates([[-0.7, -0.8], [-0.9, -0.9]])
    trees.append(build_tree(BONUS, drafts_wide, budget=2))
    lens = [walk(tree, lambda node, tree=tree: (*target, 0)[tree.depths[node]]).accepted_len for tree in trees]
    assert lens == [1, 2, 1]


@given(any_candidates(), st.booleans(), st.integers(0, 10_000))
@settings(deadline=None)
def test_a_larger_budget_never_accepts_less(drafts: Marginals, is_spine_first: bool, seed: int) -> None:
    largest = build_tree(BONUS, drafts, budget=20, is_spine_first=is_spine_first)
    lens = [accepted_len(largest.prefix(budget), seed) for budget in range(largest.num_nodes + 1)]
    assert lens == sorted(lens)


@pytest.mark.parametrize(("budget", "max_depth"), [(-1, None), (3, -1)])
def test_no_budget_or_depth_below_zero(budget: int, max_depth: int | None) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        build_tree(BONUS, random_candidates(2, 2, seed=0), budget=budget, max_depth=max_depth)


def test_nothing_to_draft() -> None:
    alone = DraftTree.of([BONUS], [-1])
    assert build_tree(BONUS, random_candidates(3, 2, seed=0), budget=0) == alone
    assert build_tree(BONUS, random_candidates(3, 2, seed=0), budget=5, max_depth=0) == alone
    assert build_tree(BONUS, Marginals(np.zeros((0, 4), np.float32), np.zeros((0, 4), np.int64)), budget=5) == alone
