"""Who holds which page: the pool and the radix cache as running sequences use them.

The only place where a sequence's pages change. A sequence's first pages are shared (owned by the radix cache, locked
for as long as the sequence runs), the rest are its own. `publish` turns own pages into shared ones.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from deepdraft.cost.kv import num_pages
from deepdraft.infer.errors import LawBroken
from deepdraft.infer.kv.defragment import scattered_stretch
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.kv.radix import RadixCache
from deepdraft.infer.sequence import Sequence


class PageLedger:
    """Gives pages to sequences and takes them back, evicting from the radix cache what it must."""

    def __init__(self, pool: PagePool, *, has_radix_cache: bool) -> None:
        self._pool = pool
        self._radix = RadixCache(pool) if has_radix_cache else None

    @property
    def num_free_pages(self) -> int:
        """Pages that nobody holds."""
        return self._pool.num_free_pages

    @property
    def num_cached_pages(self) -> int:
        """Pages of the radix cache."""
        return self._radix.num_cached_pages if self._radix else 0

    @property
    def num_evictable_pages(self) -> int:
        """Pages of the radix cache that no running sequence uses."""
        return self._radix.num_evictable_pages if self._radix else 0

    def admit(self, sequence: Sequence, *, num_spare_pages: int) -> bool:
        """Give a sequence without pages all that its prefill needs: what the radix cache has, and new pages.

        At least one row is left to run where the sequence has no output yet, since its first token comes from there.
        False, and nothing changes, unless `num_spare_pages` stay free or evictable beside it.
        """
        table = sequence.page_table
        matchable = sequence.prefill_len if sequence.has_output else sequence.prefill_len - 1
        shared: tuple[int, ...] = ()
        if self._radix:
            match = self._radix.match(sequence.token_ids[:matchable])
            shared, sequence.node = match.pages, match.node
            self._radix.lock(match.node)  # before its pages are counted as evictable
        missing = num_pages(sequence.prefill_len, table.page_size) - len(shared)
        if missing + num_spare_pages > self.num_free_pages + self.num_evictable_pages:
            self._unlock(sequence)
            return False
        self._evict_for(missing)
        table.pages = array("i", shared)
        table.pages.extend(self._pool.allocate(missing, after=shared[-1] if shared else None))
        table.num_tokens = len(shared) * table.page_size
        sequence.num_shared_pages = len(shared)
        if sequence.num_cached_tokens is None:
            sequence.num_cached_tokens = table.num_tokens
        return True

    def grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Make room for `num_tokens` in all. False, and nothing changes, when no page can be had."""
        table = sequence.page_table
        missing = table.num_pages_to_reach(num_tokens)
        if missing > self.num_free_pages + self.num_evictable_pages:
            return False
        if missing:
            self._evict_for(missing)
            table.pages.extend(self._pool.allocate(missing, after=table.pages[-1] if table.pages else None))
        return True

    def stretch(self, sequence: Sequence, num_tokens: int) -> int:
        """Make room for `num_tokens` in all, or for as many of them as pages can be had; returns how many."""
        table = sequence.page_table
        num_obtainable = len(table.pages) + self.num_free_pages + self.num_evictable_pages
        reached = min(num_tokens, num_obtainable * table.page_size)
        self.grow(sequence, reached)
        return reached

    def trim(self, sequence: Sequence) -> None:
        """Free the pages that hold no token: room that drafts were given, and that nobody shall miss."""
        table = sequence.page_table
        num_used = num_pages(table.num_tokens, table.page_size)
        self._pool.free(table.pages[num_used:])
        del table.pages[num_used:]

    def defragment(self, sequence: Sequence, max_pages: int) -> int:
        """Move at most `max_pages` of the sequence's own pages that lie in several runs into one run, where the pool
        has it; returns how many were moved. The radix cache's pages stay where they are."""
        table = sequence.page_table
        scattered = scattered_stretch(table.pages[sequence.num_shared_pages :], max_pages)
        if scattered is None:
            return 0
        first, stop = (sequence.num_shared_pages + place for place in scattered)
        target = self._pool.allocate_run(stop - first)
        if target is None:
            return 0
        source = table.pages[first:stop]
        self._pool.move_pages(source, target)
        self._pool.free(source)
        table.pages[first:stop] = array("i", target)
        return len(target)

    def publish(self, sequence: Sequence) -> None:
        """Let other requests use the whole pages that are written. Where the radix cache has the same tokens under
        other pages, the sequence goes on with those, and its own are freed."""
        table = sequence.page_table
        num_full = table.num_tokens // table.page_size
        if self._radix is None or num_full <= sequence.num_shared_pages:
            return
        token_ids = sequence.token_ids[: num_full * table.page_size]
        inserted = self._radix.insert(token_ids, table.pages[:num_full])
        self._radix.lock(inserted.node)
        self._unlock(sequence)
        num_known = inserted.num_cached_before // table.page_size
        duplicates = table.pages[sequence.num_shared_pages : num_known]
        if duplicates:
            table.pages[:num_full] = array("i", self._radix.match(token_ids).pages)
            self._pool.free(duplicates)
        sequence.node, sequence.num_shared_pages = inserted.node, num_full

    def release(self, sequence: Sequence) -> None:
        """Free the sequence's own pages and leave the shared ones to the radix cache."""
        table = sequence.page_table
        self._pool.free(table.pages[sequence.num_shared_pages :])
        self._unlock(sequence)
        table.pages, table.num_tokens, sequence.num_shared_pages = array("i"), 0, 0

    def clear(self) -> bool:
        """Empty the radix cache; False, and nothing happens, while a sequence uses it."""
        return self._radix.clear() if self._radix else True

    def check(self, running: Iterable[Sequence]) -> None:
        """Raises LawBroken unless every page is free, held by one sequence, or cached."""
        sequences = list(running)
        held = [page for sequence in sequences for page in sequence.page_table.pages[sequence.num_shared_pages :]]
        self._pool.check()
        if self._radix:
            self._radix.check(held)
        elif self._pool.num_free_pages + len(held) != self._pool.num_pages:
            raise LawBroken(f"{self._pool.num_free_pages} pages free + {len(held)} held of {self._pool.num_pages}")
        for sequence in sequences:
            table = sequence.page_table
            if not sequence.num_shared_pages * table.page_size <= table.num_tokens <= table.capacity:
                raise LawBroken(f"request {sequence.request.request_id} has tokens beyond its pages, or none in some")
        if not sequences and self.num_evictable_pages != self.num_cached_pages:
            raise LawBroken("nothing runs, but pages of the radix cache are locked")

    def _evict_for(self, num_wanted: int) -> None:
        missing = num_wanted - self.num_free_pages
        if self._radix and missing > 0:
            self._radix.evict(missing)

    def _unlock(self, sequence: Sequence) -> None:
        if self._radix and sequence.node is not None:
            self._radix.unlock(sequence.node)
        sequence.node = None
