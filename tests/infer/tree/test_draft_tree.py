"""All forms of a tree tell the same tree, and a chain's is causal attention."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tree_case import BONUS, any_trees, node_path, random_tree

from deepdraft.infer.tree.draft_tree import DraftTree

LONE = DraftTree.of([BONUS], [-1])


def chain(num_nodes: int) -> DraftTree:
    return DraftTree.of(range(num_nodes + 1), range(-1, num_nodes))


def words_as_mask(tree: DraftTree) -> list[list[bool]]:
    """The definition, bit by bit."""
    size = tree.num_nodes + 1
    words = tree.ancestor_words.tolist()
    return [[bool(words[i][j // 64] >> (j % 64) & 1) for j in range(size)] for i in range(size)]


@given(any_trees())
def test_a_node_sees_what_its_parent_sees_and_itself(tree: DraftTree) -> None:
    mask = tree.ancestor_mask
    assert mask.dtype == torch.bool and mask.shape == (tree.num_nodes + 1,) * 2
    assert mask[0].nonzero().flatten().tolist() == [0]
    for node in range(1, tree.num_nodes + 1):
        expected = mask[tree.parents[node]].clone()
        expected[node] = True
        assert torch.equal(mask[node], expected)


@given(any_trees())
def test_what_a_node_sees_is_its_path(tree: DraftTree) -> None:
    for node in range(tree.num_nodes + 1):
        seen = tree.ancestor_mask[node].nonzero().flatten().tolist()
        assert seen[0] == 0 and seen[-1] == node
        assert tuple(tree.token_ids[ancestor] for ancestor in seen[1:]) == node_path(tree, node)
        assert tree.depths[node] == len(seen) - 1  # so that its position is that of its path run alone


@pytest.mark.parametrize("num_nodes", [0, 1, 62, 63, 64, 65, 127, 128, 200])
def test_bits_are_the_mask(num_nodes: int) -> None:
    tree = random_tree(num_nodes, seed=num_nodes)
    assert tree.ancestor_words.dtype == "uint64"
    assert tree.ancestor_words.shape == (num_nodes + 1, num_nodes // 64 + 1)
    assert words_as_mask(tree) == tree.ancestor_mask.tolist()


@pytest.mark.parametrize("num_nodes", [0, 1, 15, 63, 64, 130])
def test_a_chain_is_causal(num_nodes: int) -> None:
    tree = chain(num_nodes)
    assert tree.is_chain
    assert tree.depths == tuple(range(num_nodes + 1))
    assert torch.equal(tree.ancestor_mask, torch.ones(num_nodes + 1, num_nodes + 1).tril().bool())


@given(any_trees())
def test_only_a_chain_is_a_chain(tree: DraftTree) -> None:
    has_one_child_each = all(tree.parents.count(node) <= 1 for node in range(tree.num_nodes + 1))
    assert tree.is_chain == has_one_child_each


@given(any_trees())
def test_child_and_sibling_links_lead_to_the_same_children(tree: DraftTree) -> None:
    for node in range(tree.num_nodes + 1):
        linked, child = [], tree.first_children[node]
        while child != -1:
            linked.append(child)
            child = tree.next_siblings[child]
        assert linked == [child for child, parent in enumerate(tree.parents) if parent == node]
        for child in linked:
            assert tree.child(node, tree.token_ids[child]) == child
        assert tree.child(node, 99) is None
    assert tree.next_siblings[0] == -1


@given(any_trees(), st.data())
def test_a_prefix_is_the_tree_that_was_there_before(tree: DraftTree, data: st.DataObject) -> None:
    num_nodes = data.draw(st.integers(0, tree.num_nodes))
    prefix = tree.prefix(num_nodes)
    assert prefix == DraftTree.of(tree.token_ids[: num_nodes + 1], tree.parents[: num_nodes + 1])
    assert prefix.num_nodes == num_nodes
    assert torch.equal(prefix.ancestor_mask, tree.ancestor_mask[: num_nodes + 1, : num_nodes + 1])


@pytest.mark.parametrize("num_nodes", [-1, 4])
def test_there_is_no_prefix_of_more_than_there_is(num_nodes: int) -> None:
    with pytest.raises(ValueError, match="prefix"):
        chain(3).prefix(num_nodes)


def test_a_bonus_token_alone() -> None:
    assert LONE.num_nodes == 0 and LONE.is_chain
    assert LONE.child(0, BONUS) is None
    assert LONE.ancestor_mask.tolist() == [[True]]
    assert LONE.ancestor_words.tolist() == [[1]]
    assert (LONE.first_children, LONE.next_siblings) == ((-1,), (-1,))


@pytest.mark.parametrize(
    ("token_ids", "parents", "reason"),
    [
        ([], [], "node 0"),
        ([1, 2], [-1], "each node"),
        ([1], [0], "node 0"),
        ([1, 2], [-1, -1], "node 1"),
        ([1, 2, 3], [-1, 2, 0], "node 1"),
        ([1, 2, 3], [-1, 1, 0], "node 1"),
        ([1, 2, 2], [-1, 0, 0], "siblings"),
    ],
)
def test_what_is_no_tree(token_ids: list[int], parents: list[int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        DraftTree.of(token_ids, parents)


def test_the_same_token_under_different_parents_is_no_confusion() -> None:
    tree = DraftTree.of([5, 5, 5, 5, 6], [-1, 0, 1, 2, 1])
    assert [tree.child(node, 5) for node in range(4)] == [1, 2, 3, None]
    assert tree.child(1, 6) == 4 and tree.child(0, 6) is None
