"""A tree of drafts and the forms in which kernels and engines want it: parents, depths, child and sibling arrays,
ancestor mask and ancestor bits.

How a tree is chosen is `build`'s business. A tree never changes; its derived forms are made when first asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_WORD_BITS = 64


@dataclass(frozen=True)
class DraftTree:
    """The bonus token and the drafts behind it, one entry for each node in all three tuples."""

    token_ids: tuple[int, ...]
    """Of node 0 the bonus token. Siblings differ."""
    parents: tuple[int, ...]
    """A parent comes before its children; -1 for node 0."""
    depths: tuple[int, ...]
    """Below node 0, which is 0: a node's row has the position of node 0 plus this."""
    log_probs: tuple[float, ...] = field(default=(), compare=False)
    """How likely the drafter held each node's path, natural logarithm; 0 for node 0. Empty: not said."""

    @classmethod
    def of(cls, token_ids: Sequence[int], parents: Sequence[int]) -> DraftTree:
        """From the parents alone. Raises ValueError for what is no tree, or has siblings with the same token."""
        if len(token_ids) != len(parents) or not parents or parents[0] != -1:
            raise ValueError("a tree has a token and a parent for each node, and -1 as the parent of node 0")
        depths = [0]
        for node in range(1, len(parents)):
            if not 0 <= parents[node] < node:
                raise ValueError(f"the parent of node {node} must come before it: {parents[node]}")
            depths.append(depths[parents[node]] + 1)
        tree = cls(tuple(token_ids), tuple(parents), tuple(depths))
        if len(tree._child_of) != tree.num_nodes:
            raise ValueError("siblings must have different tokens")
        return tree

    @property
    def num_nodes(self) -> int:
        """Drafts: node 0 is not counted. A verify pass has one row more."""
        return len(self.parents) - 1

    @property
    def is_chain(self) -> bool:
        """Whether no node has two children: its mask is the causal one and its depths are 0, 1, 2, ..."""
        return self.depths[-1] == self.num_nodes

    def child(self, node: int, token_id: int) -> int | None:
        """The child of `node` that has this token; None where it has none."""
        return self._child_of.get((node, token_id))

    def prefix(self, num_nodes: int) -> DraftTree:
        """The first `num_nodes` nodes: the tree that `build_tree` makes of the same candidates with that budget.

        Raises ValueError for fewer than 0 or more than there are.
        """
        if not 0 <= num_nodes <= self.num_nodes:
            raise ValueError(f"a tree of {self.num_nodes} nodes has no prefix of {num_nodes}")
        stop = num_nodes + 1
        return DraftTree(self.token_ids[:stop], self.parents[:stop], self.depths[:stop], self.log_probs[:stop])

    @cached_property
    def first_children(self) -> tuple[int, ...]:
        """Each node's first child, -1 where it has none (SGLang's `retrieve_next_token`)."""
        return self._links[0]

    @cached_property
    def next_siblings(self) -> tuple[int, ...]:
        """Each node's next sibling, -1 for the last, in node order (SGLang's `retrieve_next_sibling`)."""
        return self._links[1]

    @cached_property
    def ancestor_words(self) -> NDArray[np.uint64]:
        """uint64 [n + 1, ceil((n + 1) / 64)] for n nodes: bit j % 64 of word j // 64 in row i is set when node j is
        node i or above it."""
        rows = [1]
        for node in range(1, len(self.parents)):
            rows.append(rows[self.parents[node]] | 1 << node)
        num_bytes = -(-len(rows) // _WORD_BITS) * _WORD_BITS // 8
        packed = b"".join(row.to_bytes(num_bytes, "little") for row in rows)
        return np.frombuffer(packed, dtype="<u8").reshape(len(rows), -1).astype(np.uint64, copy=False)

    @cached_property
    def ancestor_mask(self) -> Tensor:
        """bool [n + 1, n + 1] for n nodes: row i is the nodes that node i sees, which are its parent's and itself."""
        row_bytes = self.ancestor_words.astype("<u8", copy=False).view(np.uint8)
        bits = np.unpackbits(row_bytes, axis=1, count=len(self.parents), bitorder="little")
        return torch.from_numpy(bits.view(np.bool_))

    @cached_property
    def _child_of(self) -> dict[tuple[int, int], int]:
        """(node, token) -> child."""
        return {
            (self.parents[node], self.token_ids[node]): node
            for node in range(self.num_nodes, 0, -1)  # backwards: of equal siblings the first one stays
        }

    @cached_property
    def _links(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        first_children, next_siblings = [-1] * len(self.parents), [-1] * len(self.parents)
        for node in range(self.num_nodes, 0, -1):
            parent = self.parents[node]
            next_siblings[node] = first_children[parent]
            first_children[parent] = node
        return tuple(first_children), tuple(next_siblings)
