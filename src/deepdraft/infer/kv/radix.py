"""The radix cache: pages of earlier prompts, found again by their tokens. A tree whose edges are runs of whole pages.

A page is reusable only as a whole, so keys are compared, and nodes split, at page boundaries alone. What a match
costs grows with the tokens compared, not with the size of the tree.

Least recently used means by a count of matches and inserts, not by a clock, so a run can be repeated exactly.
Eviction takes pages from the end of the least recently used unlocked leaf, no more of them than asked for: the start
of a long prompt outlives its end.

The cache never reads or writes a KV row. It owns the pages it holds and frees them into the pool.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, count

from deepdraft.infer.errors import LawBroken
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.kv.radix_node import RadixNode

__all__ = ["Inserted", "Match", "RadixCache", "RadixNode"]


@dataclass(frozen=True, slots=True)
class Match:
    """The longest cached prefix of a prompt."""

    pages: tuple[int, ...]
    num_tokens: int
    """len(pages) x page size"""
    node: RadixNode
    """Lock it before anything is evicted, and the pages stay."""


@dataclass(frozen=True, slots=True)
class Inserted:
    """What became of the pages handed to the cache: it owns those of tokens num_cached_before : num_tokens now."""

    num_cached_before: int
    """The prefix, in tokens, that the cache held already. Pages handed over for it are still the caller's to free,
    except those that are the cache's own, from an earlier match."""
    num_tokens: int
    """The prefix, in tokens, that the cache holds now: all whole pages. A page beyond it is still the caller's."""
    node: RadixNode


class RadixCache:
    """Pages of earlier prompts. Empty at first."""

    def __init__(self, pool: PagePool) -> None:
        self._pool = pool
        self._page_bytes = pool.page_size * array("i").itemsize
        self._root = RadixNode(None, b"", ())
        self._num_cached_pages = 0
        self._num_locked_pages = 0
        self._num_nodes = 0
        self._num_uses = 0
        self._queue: list[tuple[int, int, RadixNode]] = []
        """Heap of (last_used, tie break, node). Every evictable node has an entry with its present last_used; any
        other entry is stale and skipped."""
        self._tie_break = count()

    @property
    def num_cached_pages(self) -> int:
        """Pages that the cache owns."""
        return self._num_cached_pages

    @property
    def num_evictable_pages(self) -> int:
        """Pages that `evict` could free now."""
        return self._num_cached_pages - self._num_locked_pages

    def match(self, token_ids: Sequence[int]) -> Match:
        """The longest prefix of `token_ids` in whole pages that is cached. It counts as used.

        A prompt cached to its last token leaves nothing to run the model on: to get logits, match all but the last.
        """
        node, pages = self._walk(self._key_of(token_ids))
        return Match(pages, len(pages) * self._pool.page_size, node)

    def insert(self, token_ids: Sequence[int], pages: Sequence[int]) -> Inserted:
        """Hand over the pages that hold `token_ids`, whose KV rows are written. Only whole pages are taken, and of
        those only what is not cached yet; `Inserted` says which pages are still the caller's.

        Raises ValueError when there are fewer pages than whole pages of tokens.
        """
        key = self._key_of(token_ids)
        num_pages = len(key) // self._page_bytes
        if len(pages) < num_pages:
            raise ValueError(f"{len(pages)} pages can't hold {len(token_ids)} tokens")
        node, cached = self._walk(key)
        num_before = len(cached)
        if num_before < num_pages:
            node = node.add_child(key[num_before * self._page_bytes :], tuple(pages[num_before:num_pages]))
            self._num_nodes += 1
            self._num_cached_pages += len(node.pages)
            self._queue_if_evictable(node)
        return Inserted(num_before * self._pool.page_size, num_pages * self._pool.page_size, node)

    def lock(self, node: RadixNode) -> None:
        """Keep a node and all above it from eviction. Locks are counted. Raises LawBroken for an evicted node."""
        for step in self._path_of(node):
            step.num_locks += 1
            if step.num_locks == 1:
                self._num_locked_pages += len(step.pages)

    def unlock(self, node: RadixNode) -> None:
        """Take back one `lock` of the same node. Raises LawBroken when there is none."""
        path = self._path_of(node)
        if path and node.num_own_locks == 0:
            raise LawBroken("a node of the radix cache is unlocked more often than it was locked")
        for step in path:
            step.num_locks -= 1
            if step.num_locks == 0:
                self._num_locked_pages -= len(step.pages)
        self._queue_if_evictable(node)

    def evict(self, num_pages: int) -> int:
        """Free up to `num_pages` pages into the pool, the least recently used first; a locked one never. Returns how
        many were freed: fewer only when no more are evictable."""
        num_freed = 0
        while num_freed < num_pages and self._queue:
            last_used, _, leaf = self._queue[0]
            if not leaf.is_evictable or leaf.last_used != last_used:
                heappop(self._queue)
                continue
            num_to_stay = num_freed + len(leaf.pages) - num_pages
            if num_to_stay > 0:
                leaf.split(num_to_stay)
                self._num_nodes += 1
            num_freed += len(leaf.pages)
            self._remove(leaf)
        return num_freed

    def clear(self) -> bool:
        """Free all pages into the pool; False, and nothing happens, while one is locked."""
        if self._num_locked_pages:
            return False
        self.evict(self._num_cached_pages)
        self._queue.clear()
        return True

    def check(self, private_pages: Iterable[int] | None = None) -> None:
        """Raises LawBroken where the tree contradicts itself or the pool. Given all the pages that requests hold
        beside the cache, also where a page of the pool is lost, or in two places."""
        nodes = list(self._root.below())
        queued = {(id(node), last_used) for last_used, _, node in self._queue}
        for node in nodes:
            self._check_node(node)
            if node.is_evictable and (id(node), node.last_used) not in queued:
                raise LawBroken("a leaf of the radix cache can't be found by eviction")
        pages = [page for node in nodes for page in node.pages]
        counted = (self._num_nodes, self._num_cached_pages, self._num_locked_pages)
        found = (len(nodes), len(pages), sum(len(node.pages) for node in nodes if node.num_locks))
        if counted != found:
            raise LawBroken(f"the radix cache counts nodes, pages, locked pages as {counted}, it has {found}")
        if private_pages is not None:
            pages.extend(private_pages)
        if len(set(pages)) != len(pages):
            raise LawBroken("a page is cached or held twice")
        if any(self._pool.is_free(page) for page in pages):
            raise LawBroken("a page that is cached or held is free")
        num_free = self._pool.num_free_pages
        if private_pages is not None and num_free + len(pages) != self._pool.num_pages:
            num_held = len(pages) - self._num_cached_pages
            raise LawBroken(
                f"pages: {num_free} free + {num_held} held + {self._num_cached_pages} cached "
                f"are not the pool's {self._pool.num_pages}"
            )

    def _check_node(self, node: RadixNode) -> None:
        if not node.pages or len(node.key) != len(node.pages) * self._page_bytes:
            raise LawBroken(f"a node of the radix cache has {len(node.key)} bytes of tokens, {len(node.pages)} pages")
        if node.parent is None or node.parent.children.get(node.head) is not node:
            raise LawBroken("a node of the radix cache is not where its tokens say")
        if node.num_own_locks < 0:
            raise LawBroken("nodes of the radix cache are locked more often than the one above them")
        if node.last_used > node.parent.last_used:
            raise LawBroken("a node of the radix cache was used later than the one above it")

    def _key_of(self, token_ids: Sequence[int]) -> bytes:
        """The whole pages of `token_ids`."""
        num_tokens = len(token_ids) // self._pool.page_size * self._pool.page_size
        return array("i", token_ids[:num_tokens]).tobytes()

    def _walk(self, key: bytes) -> tuple[RadixNode, tuple[int, ...]]:
        """Follow `key` as far as it is cached, split the node where it leaves, and mark the path as used."""
        self._num_uses += 1
        node = self._root
        node.last_used = self._num_uses
        matched: list[tuple[int, ...]] = []
        start = 0
        while (child := node.children.get(key[start : start + self._page_bytes])) is not None:
            num_common = child.num_common_pages(key, start)
            if num_common < len(child.pages):
                child = child.split(num_common)
                self._num_nodes += 1
            node = child
            node.last_used = self._num_uses
            matched.append(node.pages)
            start += num_common * self._page_bytes
        self._queue_if_evictable(node)
        return node, tuple(chain.from_iterable(matched))

    def _remove(self, leaf: RadixNode) -> None:
        parent = leaf.detach()
        self._num_nodes -= 1
        self._num_cached_pages -= len(leaf.pages)
        self._pool.free(leaf.pages)
        self._queue_if_evictable(parent)

    def _queue_if_evictable(self, node: RadixNode) -> None:
        if not node.is_evictable:
            return
        heappush(self._queue, (node.last_used, next(self._tie_break), node))
        if len(self._queue) > 2 * self._num_nodes + 64:  # mostly stale: begin anew
            leaves = (leaf for leaf in self._root.below() if leaf.is_evictable)
            self._queue = [(leaf.last_used, next(self._tie_break), leaf) for leaf in leaves]
            heapify(self._queue)

    def _path_of(self, node: RadixNode) -> list[RadixNode]:
        """The node and all above it, without the root. Raises LawBroken for an evicted node."""
        path = []
        while node is not self._root:
            if node.parent is None:
                raise LawBroken("a node of the radix cache is used after it was evicted")
            path.append(node)
            node = node.parent
        return path
