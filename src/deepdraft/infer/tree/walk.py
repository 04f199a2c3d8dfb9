"""The way of the target's own tokens down a tree: what a verify step accepts.

At each node the target's token is chosen as it would be without drafts; where a child has that token it is accepted
and the walk goes on from there, else the token is the new bonus token. So every token is the target's own choice
after exactly the tokens before it, and the output is the target's whatever the tree, greedy or sampled. A node is
left with the probability that its children have under the target, summed: no rule could accept more of a tree that
was chosen without chance. To accept a child with min(1, p / q) would not be exact: that is for drafts drawn from q.

What is chosen may depend on the whole path (penalties, a minimum of tokens): the walk asks for one node after the
other, each time knowing the path. Nothing falls back to a chain for that. Grammars are refused by the server.

Leaves out what ends a request inside the path: `commit` truncates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from deepdraft.infer.tree.draft_tree import DraftTree


@dataclass(frozen=True, slots=True)
class Walk:
    """Where the walk went."""

    path: tuple[int, ...]
    """Nodes from node 0 down, in rising order: the rows of a verify pass that stay in the cache."""
    next_token_id: int
    """The target's token after the last of them, the new bonus token; not in the cache yet."""

    @property
    def accepted_len(self) -> int:
        """Drafts accepted; 0 is possible. The tokens to commit are one more: theirs and the new bonus token."""
        return len(self.path) - 1


def walk(tree: DraftTree, choose: Callable[[int], int]) -> Walk:
    """Follow the target down the tree. `choose(node)` is the target's token after that node's path, sampled from the
    node's row of logits; it is called once for each node of the path, in order, and for no other."""
    path = [0]
    while True:
        token_id = choose(path[-1])
        child = tree.child(path[-1], token_id)
        if child is None:
            return Walk(tuple(path), token_id)
        path.append(child)


def would_accept(tree: DraftTree, token_ids: Iterable[int]) -> int | None:
    """How many drafts of a tree that was not verified a walk would have accepted, by the tokens that came after its
    bonus token; None while these have not left the tree."""
    node, accepted_len = 0, 0
    for token_id in token_ids:
        child = tree.child(node, token_id)
        if child is None:
            return accepted_len
        node, accepted_len = child, accepted_len + 1
    return None if tree.first_children[node] > 0 else accepted_len
