from array import array
from dataclasses import dataclass
from random import Random

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from prefix_model import Prefix, PrefixModel

from deepdraft.infer.errors import LawBroken
from deepdraft.infer.kv.layout import KvLayout, LayerShape
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.kv.radix import RadixCache
from deepdraft.infer.kv.radix_node import RadixNode


def pool_of(num_pages: int, page_size: int) -> PagePool:
    return PagePool(KvLayout((LayerShape(1, 1, 1, is_latent=True),), page_size, torch.float64), num_pages)


@dataclass
class Running:
    """A request as an engine would hold it."""

    token_ids: Prefix
    table: PageTable
    num_shared_pages: int
    """The first pages are the cache's own."""
    node: RadixNode
    locked: Prefix
    """The tokens that its lock covers."""


class Serving(RuleBasedStateMachine):
    """A small engine: requests come, share, grow, end, are aborted; pages are evicted. Against PrefixModel.

    The row of each token is a marker of the whole prefix up to it, as a KV row depends on all tokens before: a page
    found for other tokens than it was written for shows at once.
    """

    def marker(self, prefix: Prefix) -> float:
        return float(self.markers.setdefault(prefix, len(self.markers) + 1))

    @initialize(page_size=st.sampled_from([1, 2, 3, 16]), num_pages=st.integers(4, 24))
    def start(self, page_size, num_pages):
        self.page_size = page_size
        self.pool = pool_of(num_pages, page_size)
        self.cache = RadixCache(self.pool)
        self.model = PrefixModel(page_size)
        self.running: list[Running] = []
        self.markers: dict[Prefix, int] = {}

    def drawn_tokens(self, data) -> Prefix:
        """Pages out of few, two of them alike but for the last token, then a part of a page; or on from a request
        that is running or a prompt that is cached."""
        size = self.page_size
        page = st.sampled_from([(1,) * size, (1,) * (size - 1) + (2,), (3,) * size])
        known = [running.token_ids for running in self.running] + list(self.model.cached)
        begun: Prefix = ()
        if known and data.draw(st.booleans()):
            begun = data.draw(st.sampled_from(known))
            begun = begun[: data.draw(st.just(len(begun)) | st.integers(0, len(begun)))]
        pages = data.draw(st.lists(page, max_size=5))
        tail = data.draw(st.integers(0, size - 1))
        return begun + tuple(token for page in pages for token in page) + (1,) * tail

    def is_enough(self, num_pages: int) -> bool:
        """Evict as an engine does when pages are short; the same pages must go as in the model."""
        missing = num_pages - self.pool.num_free_pages
        if missing > 0:
            self.evict_exactly(missing)
        return num_pages <= self.pool.num_free_pages

    def evict_exactly(self, num_pages: int) -> None:
        before = {page for page in range(self.pool.num_pages) if self.pool.is_free(page)}
        expected = self.model.evict(num_pages)
        assert self.cache.evict(num_pages) == len(expected)
        after = {page for page in range(self.pool.num_pages) if self.pool.is_free(page)}
        assert after - before == set(expected)
        assert before <= after

    def run(self, running: Running) -> None:
        """Write the rows that are not there yet."""
        table, stop = running.table, len(running.token_ids)
        slots = table.slots(table.num_tokens, stop)
        rows = [self.marker(running.token_ids[:end]) for end in range(table.num_tokens + 1, stop + 1)]
        self.pool.write(0, slots, torch.tensor(rows, dtype=torch.float64).reshape(-1, 1, 1), None)
        table.num_tokens = stop

    def private_pages(self) -> list[int]:
        return [page for running in self.running for page in running.table.pages[running.num_shared_pages :]]

    @rule(data=st.data())
    def match(self, data):
        token_ids = self.drawn_tokens(data)
        matched = self.cache.match(token_ids)
        expected = self.model.match(token_ids)
        assert matched.pages == tuple(self.model.cached[prefix].page for prefix in expected)
        assert matched.num_tokens == len(matched.pages) * self.page_size

    @rule(data=st.data())
    def begin(self, data):
        token_ids = self.drawn_tokens(data)
        matched = self.cache.match(token_ids)
        self.model.match(token_ids)
        locked = token_ids[: matched.num_tokens]
        self.cache.lock(matched.node)
        self.model.lock(locked)
        table = PageTable(self.page_size, list(matched.pages), matched.num_tokens)
        num_missing = table.num_pages_to_reach(len(token_ids))
        if not self.is_enough(num_missing):
            self.cache.unlock(matched.node)
            self.model.lock(locked, -1)
            return
        table.pages.extend(self.pool.allocate(num_missing))
        running = Running(token_ids, table, len(matched.pages), matched.node, locked)
        self.run(running)
        self.running.append(running)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def grow(self, data):
        """Decode: some tokens more, on further pages where needed."""
        running = data.draw(st.sampled_from(self.running))
        token_ids = running.token_ids + tuple(data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4)))
        num_missing = running.table.num_pages_to_reach(len(token_ids))
        if not self.is_enough(num_missing):
            return
        running.table.pages.extend(self.pool.allocate(num_missing, after=(running.table.pages or [0])[-1]))
        running.token_ids = token_ids
        self.run(running)

    def hand_over(self, running: Running) -> RadixNode:
        """Insert all that is written; free the request's own copies of what was cached meanwhile."""
        table = running.table
        inserted = self.cache.insert(running.token_ids, table.pages)
        assert inserted.num_cached_before == self.model.insert(running.token_ids, table.pages)
        assert inserted.num_tokens == len(running.token_ids) // self.page_size * self.page_size
        num_cached_before = inserted.num_cached_before // self.page_size
        self.pool.free(table.pages[running.num_shared_pages : num_cached_before])
        running.num_shared_pages = inserted.num_tokens // self.page_size
        return inserted.node

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def share(self, data):
        """What is written so far becomes the cache's while the request goes on."""
        running = data.draw(st.sampled_from(self.running))
        node = self.hand_over(running)
        locked = running.token_ids[: running.num_shared_pages * self.page_size]
        self.cache.lock(node)
        self.model.lock(locked)
        self.cache.unlock(running.node)
        self.model.lock(running.locked, -1)
        pages = self.cache.match(locked).pages
        self.model.match(locked)
        running.table.pages[: len(pages)] = array("i", pages)
        running.node, running.locked = node, locked

    @precondition(lambda self: self.running)
    @rule(data=st.data(), is_kept=st.booleans())
    def end(self, data, is_kept):
        """With its pages kept in the cache, or as an aborted request gives back its own."""
        running = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if is_kept:
            self.hand_over(running)
        self.pool.free(running.table.pages[running.num_shared_pages :])
        self.cache.unlock(running.node)
        self.model.lock(running.locked, -1)

    @rule(num_pages=st.integers(0, 3))
    def evict(self, num_pages):
        self.evict_exactly(num_pages)

    @precondition(lambda self: len(self.model.cached) > 5)
    @rule()
    def clear(self):
        is_locked = self.model.num_locked > 0
        assert self.cache.clear() is not is_locked
        if not is_locked:
            self.model.cached.clear()

    @invariant()
    def every_page_is_in_one_place(self):
        self.pool.check()
        self.cache.check(self.private_pages())
        held = len(self.private_pages())
        assert self.pool.num_free_pages + held + self.cache.num_cached_pages == self.pool.num_pages
        assert self.cache.num_cached_pages == len(self.model.cached)
        assert self.cache.num_evictable_pages == len(self.model.cached) - self.model.num_locked

    @invariant()
    def rows_are_what_was_written(self):
        rows = self.pool.layer(0).keys[:, 0, 0].tolist()
        for prefix, entry in self.model.cached.items():
            start = len(prefix) - self.page_size
            expected = [self.markers[prefix[: start + within + 1]] for within in range(self.page_size)]
            assert rows[entry.page * self.page_size : (entry.page + 1) * self.page_size] == expected
        for running in self.running:
            slots = running.table.slots(0, len(running.token_ids)).tolist()
            expected = [self.markers[running.token_ids[:end]] for end in range(1, len(slots) + 1)]
            assert [rows[slot] for slot in slots] == expected


Serving.TestCase.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
test_serving = Serving.TestCase


def cached(cache: RadixCache, pool: PagePool, token_ids: list[int]) -> tuple[int, ...]:
    """Put a prompt into the cache and return all its pages there."""
    inserted = cache.insert(token_ids, pages := pool.allocate(len(token_ids) // pool.page_size))
    pool.free(pages[: inserted.num_cached_before // pool.page_size])
    return cache.match(token_ids).pages


@pytest.fixture
def pool() -> PagePool:
    return pool_of(64, page_size=2)


@pytest.fixture
def cache(pool: PagePool) -> RadixCache:
    return RadixCache(pool)


def test_only_whole_pages_match(pool, cache):
    pages = cached(cache, pool, [1, 2, 3, 4, 5, 6])
    assert cache.match([1]).num_tokens == 0
    assert cache.match([1, 2, 3]).pages == pages[:1]
    assert cache.match([1, 2, 3, 9, 5, 6]).pages == pages[:1]
    assert cache.match([1, 2, 3, 4, 5, 6, 7]).pages == pages
    assert cache.match([2, 3, 4, 5]).num_tokens == 0


def test_the_part_of_a_page_is_not_cached(pool, cache):
    pages = pool.allocate(3)
    inserted = cache.insert([1, 2, 3, 4, 5], pages)
    assert (inserted.num_cached_before, inserted.num_tokens) == (0, 4)
    assert cache.num_cached_pages == 2
    cache.check(private_pages=pages[2:])


def test_what_two_requests_wrote_at_once_is_kept_once(pool, cache):
    one, other = pool.allocate(3), pool.allocate(3)
    cache.insert([1, 2, 3, 4, 5, 6], one)
    inserted = cache.insert([1, 2, 3, 4, 7, 8], other)
    assert (inserted.num_cached_before, inserted.num_tokens) == (4, 6)
    assert cache.match([1, 2, 3, 4, 7, 8]).pages == (one[0], one[1], other[2])
    cache.check(private_pages=other[:2])


def test_the_least_recently_used_end_goes_first(pool, cache):
    first = cached(cache, pool, [1, 1, 1, 1])
    second = cached(cache, pool, [2, 2, 2, 2])
    third = cached(cache, pool, [3, 3])
    cache.match([1, 1])  # the start of the first is used again; its end is not
    freed = []
    for _ in range(5):
        assert cache.evict(1) == 1
        freed.extend(page for page in first + second + third if pool.is_free(page) and page not in freed)
    assert freed == [first[1], second[1], second[0], third[0], first[0]]
    assert cache.evict(1) == 0


def test_what_was_used_again_is_not_the_oldest(pool, cache):
    one, other = cached(cache, pool, [1, 1]), cached(cache, pool, [2, 2])
    cache.match([1, 1])
    cache.evict(1)
    assert pool.is_free(other[0])
    assert not pool.is_free(one[0])


def test_no_more_of_a_long_prompt_is_evicted_than_asked_for(pool, cache):
    token_ids = list(range(100))
    pages = cached(cache, pool, token_ids)
    assert cache.evict(3) == 3
    assert cache.match(token_ids).pages == pages[:47]
    assert cache.evict(1000) == 47
    assert pool.num_free_pages == 64


def test_what_is_locked_stays_and_what_is_beyond_goes(pool, cache):
    cached(cache, pool, [1, 2, 3, 4, 5, 6])
    matched = cache.match([1, 2, 3, 4])
    cache.lock(matched.node)
    cache.lock(matched.node)
    assert cache.num_evictable_pages == 1
    assert cache.evict(10) == 1
    cache.unlock(matched.node)
    assert not cache.clear()
    assert cache.evict(10) == 0
    assert cache.match([1, 2, 3, 4, 5, 6]).pages == matched.pages
    cache.unlock(matched.node)
    assert cache.clear()
    assert pool.num_free_pages == 64
    assert cache.match([1, 2, 3, 4]).num_tokens == 0


def test_a_lock_holds_through_a_split(pool, cache):
    pages = cached(cache, pool, [1, 2, 3, 4, 5, 6])
    node = cache.match([1, 2, 3, 4, 5, 6]).node
    cache.lock(node)
    cached(cache, pool, [1, 2, 9, 9])
    assert cache.evict(10) == 1
    assert cache.match([1, 2, 3, 4, 5, 6]).pages == pages
    cache.unlock(node)
    assert cache.evict(10) == 3
    cache.check(private_pages=[])


def test_locks_are_taken_back_as_often_as_taken(pool, cache):
    cached(cache, pool, [1, 2, 3, 4])
    above, below = cache.match([1, 2]).node, cache.match([1, 2, 3, 4]).node
    cache.lock(below)
    with pytest.raises(LawBroken, match="unlocked more often"):
        cache.unlock(above)
    cache.unlock(below)
    with pytest.raises(LawBroken, match="unlocked more often"):
        cache.unlock(below)


def test_an_evicted_node_can_not_be_locked(pool, cache):
    cached(cache, pool, [1, 2, 3, 4])
    node = cache.match([1, 2, 3, 4]).node
    cache.evict(1)
    with pytest.raises(LawBroken, match="after it was evicted"):
        cache.lock(node)


def test_the_node_of_no_match_can_be_locked_like_any_other(pool, cache):
    node = cache.match([1, 2]).node
    cache.lock(node)
    assert cache.clear()
    cache.unlock(node)


def test_many_uses_leave_the_order_as_it_is(pool, cache):
    pages = {token: cached(cache, pool, [token, token])[0] for token in range(20)}
    random = Random(5)
    uses = [random.randrange(20) for _ in range(1000)]
    for token in uses:
        cache.match([token, token])
    assert len(cache._queue) < 200
    last_use = {token: use for use, token in enumerate(uses)}
    freed = []
    for _ in range(20):
        cache.evict(1)
        freed.extend(token for token, page in pages.items() if pool.is_free(page) and token not in freed)
    assert freed == sorted(pages, key=lambda token: last_use[token])


def test_fewer_pages_than_tokens_are_refused(pool, cache):
    with pytest.raises(ValueError, match="1 pages can't hold 4 tokens"):
        cache.insert([1, 2, 3, 4], pool.allocate(1))


def test_a_prompt_as_long_as_the_reference_deployments_at_page_size_one():
    token_ids = [position * 7919 % 4096 for position in range(185_000)]
    pool = pool_of(200_000, page_size=1)
    cache = RadixCache(pool)
    pages = cached(cache, pool, token_ids)
    assert pages == tuple(range(185_000))
    token_ids[123_456] = -1
    assert cache.match(token_ids).num_tokens == 123_456
    assert cache.evict(100_000) == 100_000
    assert cache.match(token_ids).num_tokens == 85_000
    cache.check(private_pages=[])


class TestCheckSees:
    def test_a_page_that_is_cached_and_free(self, pool, cache):
        pool.free(cached(cache, pool, [1, 2]))
        with pytest.raises(LawBroken, match="is free"):
            cache.check()

    def test_a_page_that_is_cached_and_held(self, pool, cache):
        pages = cached(cache, pool, [1, 2])
        cache.check(private_pages=[])
        with pytest.raises(LawBroken, match="cached or held twice"):
            cache.check(private_pages=pages)

    def test_a_page_that_nobody_has(self, pool, cache):
        cached(cache, pool, [1, 2])
        pages = pool.allocate(2)
        with pytest.raises(LawBroken, match=r"61 free \+ 1 held \+ 1 cached are not the pool's 64"):
            cache.check(private_pages=pages[:1])

    def test_a_wrong_count_of_locks(self, pool, cache):
        cached(cache, pool, [1, 2])
        cache.match([1, 2]).node.num_locks = 1
        with pytest.raises(LawBroken, match="counts nodes, pages, locked pages"):
            cache.check()

    def test_a_leaf_locked_more_often_than_what_is_above(self, pool, cache):
        cached(cache, pool, [1, 2])
        cached(cache, pool, [1, 2, 3, 4])
        cache.match([1, 2, 3, 4]).node.num_locks = 1
        with pytest.raises(LawBroken, match="locked more often"):
            cache.check()

    def test_a_leaf_that_eviction_would_miss(self, pool, cache):
        cached(cache, pool, [1, 2])
        cache._queue.clear()
        with pytest.raises(LawBroken, match="can't be found by eviction"):
            cache.check()

    def test_a_node_in_the_wrong_place(self, pool, cache):
        cached(cache, pool, [1, 2])
        cache.match([1, 2]).node.key = b"12345678"
        with pytest.raises(LawBroken, match="not where its tokens say"):
            cache.check()

    def test_a_node_used_later_than_the_one_above(self, pool, cache):
        cached(cache, pool, [1, 2])
        cache.match([1, 2]).node.last_used += 1
        with pytest.raises(LawBroken, match="used later"):
            cache.check()

    def test_tokens_without_their_pages(self, pool, cache):
        cached(cache, pool, [1, 2])
        cache.match([1, 2]).node.pages = ()
        with pytest.raises(LawBroken, match="8 bytes of tokens, 0 pages"):
            cache.check()
