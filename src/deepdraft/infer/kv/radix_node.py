"""A node of the radix cache's tree: a run of whole pages and what comes after it. Only structure: who may evict what,
and when, is `radix`'s work.

Tokens are int32 bytes, so two runs compare at the speed of memory; where they differ is found by bisection.
"""

from __future__ import annotations

from collections.abc import Iterator


class RadixNode:
    """An edge with the node at its end; the root has an empty edge. To all but the cache a handle to lock."""

    __slots__ = ("children", "key", "last_used", "num_locks", "pages", "parent")

    def __init__(self, parent: RadixNode | None, key: bytes, pages: tuple[int, ...]) -> None:
        self.parent = parent
        """None: the root, or a node that was evicted."""
        self.key = key
        """The tokens of `pages`."""
        self.pages = pages
        self.children: dict[bytes, RadixNode] = {}
        """By the tokens of their first page."""
        self.num_locks = 0
        """Of this node and of all below it, so that below an unlocked node nothing is locked."""
        self.last_used = 0
        """The count of matches and inserts at the latest that passed through here."""

    @property
    def page_bytes(self) -> int:
        """Of the tokens of one page. Not for the root."""
        return len(self.key) // len(self.pages)

    @property
    def head(self) -> bytes:
        """The tokens of the first page: the node's place among its parent's children. Not for the root."""
        return self.key[: self.page_bytes]

    @property
    def is_evictable(self) -> bool:
        """A leaf in the tree that nobody holds."""
        return self.parent is not None and not self.children and not self.num_locks

    @property
    def num_own_locks(self) -> int:
        """Of this node itself: those of the nodes below not counted."""
        return self.num_locks - sum(child.num_locks for child in self.children.values())

    def num_common_pages(self, key: bytes, start: int) -> int:
        """Pages that this edge and key[start:] begin with in common; that the first is, is known."""
        if key.startswith(self.key, start):
            return len(self.pages)
        size = self.page_bytes
        equal, different = 1, len(self.pages)
        while different - equal > 1:
            middle = (equal + different) // 2
            if key.startswith(self.key[equal * size : middle * size], start + equal * size):
                equal = middle
            else:
                different = middle
        return equal

    def split(self, num_pages: int) -> RadixNode:
        """Put the first pages into a new node above this one, and return that; at least one page stays here. This
        object keeps the end, so that whoever locked it still unlocks both."""
        parent, head, cut = self.parent, self.head, num_pages * self.page_bytes
        assert parent is not None, "the root and evicted nodes have nothing to split"
        upper = RadixNode(parent, self.key[:cut], self.pages[:num_pages])
        upper.num_locks, upper.last_used = self.num_locks, self.last_used
        parent.children[head] = upper
        self.parent, self.key, self.pages = upper, self.key[cut:], self.pages[num_pages:]
        upper.children[self.head] = self
        return upper

    def add_child(self, key: bytes, pages: tuple[int, ...]) -> RadixNode:
        """A new leaf below this node, used when this one was."""
        child = RadixNode(self, key, pages)
        child.last_used = self.last_used
        self.children[child.head] = child
        return child

    def detach(self) -> RadixNode:
        """Take this node out of the tree and return its parent."""
        parent = self.parent
        assert parent is not None, "the root and evicted nodes have no place to leave"
        del parent.children[self.head]
        self.parent = None
        return parent

    def below(self) -> Iterator[RadixNode]:
        """All nodes below this one, in no order."""
        waiting = list(self.children.values())
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())
