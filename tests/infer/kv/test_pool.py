import os
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from deepdraft.infer.errors import LawBroken, PoolExhausted
from deepdraft.infer.kv.layout import KvLayout, LayerShape
from deepdraft.infer.kv.pool import PagePool

LATENT = LayerShape(1, 6, 4, is_latent=True)
GQA = LayerShape(2, 3, 5, is_latent=False)


def pool_of(num_pages: int, *, layers: tuple[LayerShape, ...] = (LATENT, GQA), page_size: int = 1) -> PagePool:
    return PagePool(KvLayout(layers, page_size, torch.float32), num_pages)


def num_runs(pages: list[int]) -> int:
    return sum(page - before != 1 for before, page in zip([-9, *pages], pages, strict=False))


class Allocation(RuleBasedStateMachine):
    """The pool against a plain set of free pages."""

    @initialize(num_pages=st.integers(1, 60))
    def start(self, num_pages):
        self.pool = pool_of(num_pages)
        self.free = set(range(num_pages))
        self.held: list[int] = []

    def lowest_run(self, num_pages: int) -> list[int] | None:
        for page in sorted(self.free):
            run = list(range(page, page + num_pages))
            if self.free.issuperset(run):
                return run
        return None

    def take(self, pages: list[int]) -> None:
        assert self.free.issuperset(pages)
        assert len(set(pages)) == len(pages)
        self.free -= set(pages)
        self.held.extend(pages)

    @rule(num_pages=st.integers(0, 20))
    def allocate(self, num_pages):
        if num_pages > len(self.free):
            with pytest.raises(PoolExhausted) as raised:
                self.pool.allocate(num_pages)
            assert (raised.value.num_pages, raised.value.num_free_pages) == (num_pages, len(self.free))
            return
        run = self.lowest_run(num_pages) if num_pages else []
        pages = self.pool.allocate(num_pages)
        assert len(pages) == num_pages
        assert pages == sorted(pages)
        assert run is None or pages == run
        self.take(pages)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), num_pages=st.integers(1, 20))
    def allocate_after(self, data, num_pages):
        num_pages = min(num_pages, len(self.free))
        last = data.draw(st.sampled_from(self.held))
        following = 0
        while following < num_pages and last + 1 + following in self.free:
            following += 1
        pages = self.pool.allocate(num_pages, after=last)
        assert len(pages) == num_pages
        assert pages[:following] == list(range(last + 1, last + 1 + following))
        assert pages[following:] == sorted(pages[following:])
        self.take(pages)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data):
        pages = data.draw(st.lists(st.sampled_from(self.held), unique=True))
        self.pool.free(pages)
        self.free |= set(pages)
        self.held = [page for page in self.held if page not in self.free]

    @rule(data=st.data())
    def give_back_wrongly(self, data):
        """A page that is free, named twice or not there, among some that are right: none is freed."""
        right = data.draw(st.permutations(self.held)) if self.held else []
        wrong = [*sorted(self.free)[:3], *right[:1], -1, self.pool.num_pages, self.pool.num_pages + 5]
        page = data.draw(st.sampled_from(wrong))
        where = data.draw(st.integers(right.index(page) + 1 if page in right else 0, len(right)))
        with pytest.raises(LawBroken, match=f"page {page} can't be freed"):
            self.pool.free([*right[:where], page, *right[where:]])

    @invariant()
    def agrees(self):
        self.pool.check()
        assert self.pool.num_free_pages == len(self.free)
        assert {page for page in range(self.pool.num_pages) if self.pool.is_free(page)} == self.free


Allocation.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_allocation = Allocation.TestCase


def test_pages_come_in_as_few_runs_as_are_cheap_to_find():
    """Free: 0, 2, ... 8, then 20-27, and 40-43. Twelve pages are the two long runs and none of the single ones."""
    pool = pool_of(60)
    pool.allocate(60)
    pool.free([0, 2, 4, 6, 8, *range(20, 28), *range(40, 44)])
    pages = pool.allocate(12)
    assert pages == [*range(20, 28), *range(40, 44)]
    assert pool.allocate(1) == [0]


def test_a_growing_request_goes_on_where_it_stopped():
    pool = pool_of(20)
    pages = pool.allocate(4)
    hole = pool.allocate(2)
    later = pool.allocate(3)
    pool.free(hole)
    assert pool.allocate(1, after=later[-1]) == [9]
    assert pool.allocate(3, after=pages[-1]) == [4, 5, 10]
    assert pool.allocate(1, after=19) == [11]


def test_a_large_pool_in_small_pieces_gives_every_page_once():
    pool = pool_of(20_000, layers=(LayerShape(1, 1, 1, is_latent=True),))
    every = pool.allocate(20_000)
    pool.free(every[::2])
    pool.free(every[1:8000:2])
    pages = pool.allocate(13_000)
    assert num_runs(pages) == 1 + 13_000 - 8_001  # 0-8000 is one run
    rest = pool.allocate(pool.num_free_pages)
    assert sorted(pages + rest) == [*range(8000), *range(8000, 20_000, 2)]


def test_a_pool_has_at_least_a_page():
    with pytest.raises(ValueError, match="pool of 0 pages"):
        pool_of(0)
    with pytest.raises(ValueError, match="-1 pages wanted"):
        pool_of(1).allocate(-1)


@pytest.mark.parametrize("page", [-1, 4])
def test_a_page_of_another_pool_is_neither_free_nor_held(page):
    with pytest.raises(IndexError, match=f"page {page} of 4"):
        pool_of(4).is_free(page)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_memory_is_taken_by_writing_not_by_having():
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    before = resident_bytes()
    pool = pool_of(4096, layers=(LayerShape(1, 256, 256, is_latent=True),) * 4, page_size=64)
    pool.write(0, torch.arange(64), torch.ones(64, 1, 256), None)
    assert pool.num_bytes == 2**30
    assert resident_bytes() - before < 2**28


@pytest.mark.parametrize("page_size", [1, 3, 16])
def test_rows_are_found_where_they_were_written(page_size):
    pool = pool_of(5, page_size=page_size)
    slots = torch.tensor([4, 0, 3])
    rows = torch.randn(3, 1, 6)
    keys, values = torch.randn(3, 2, 3), torch.randn(3, 2, 5)
    pool.write(0, slots, rows, None)
    pool.write(1, slots, keys, values)
    latent, gqa = pool.layer(0), pool.layer(1)
    assert latent.keys.shape == (5 * page_size, 1, 6)
    assert latent.values.shape == (5 * page_size, 1, 4)
    assert (latent.is_latent, gqa.is_latent) == (True, False)
    assert torch.equal(latent.keys[slots], rows)
    assert torch.equal(latent.values[slots], rows[..., :4])
    assert torch.equal(gqa.keys[slots], keys)
    assert torch.equal(gqa.values[slots], values)


def test_rows_take_the_pools_dtype():
    pool = PagePool(KvLayout((GQA,), 1, torch.bfloat16), 4)
    keys = torch.full((1, 2, 3), 1 / 3)
    pool.write(0, torch.tensor([2]), keys, torch.full((1, 2, 5), 1 / 7))
    assert torch.equal(pool.layer(0).keys[2], keys[0].bfloat16())
    assert torch.equal(pool.layer(0).values[2], torch.full((2, 5), 1 / 7).bfloat16())


def test_values_belong_to_layers_that_store_them():
    pool = pool_of(2)
    slots = torch.tensor([0])
    with pytest.raises(ValueError, match="a latent layer stores keys alone"):
        pool.write(0, slots, torch.zeros(1, 1, 6), torch.zeros(1, 1, 4))
    with pytest.raises(ValueError, match="a latent layer stores keys alone"):
        pool.write(1, slots, torch.zeros(1, 2, 3), None)


@st.composite
def moves(draw):
    num_rows = draw(st.integers(0, 24))
    sources = draw(st.lists(st.integers(0, 23), min_size=num_rows, max_size=num_rows))
    targets = draw(st.lists(st.integers(0, 23), min_size=num_rows, max_size=num_rows, unique=True))
    return sources, targets


def numbered(pool: PagePool) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Fill the pool with numbers that are all different, and return a copy of every layer."""
    copies = []
    for index in range(2):
        layer = pool.layer(index)
        layer.keys.copy_(torch.arange(layer.keys.numel()).reshape(layer.keys.shape) + 1000 * index)
        if not layer.is_latent:
            layer.values.copy_(-torch.arange(layer.values.numel()).reshape(layer.values.shape))
        copies.append((layer.keys.clone(), layer.values.clone()))
    return copies


@given(moves())
def test_move_is_a_copy_by_way_of_another_place(sources_and_targets):
    sources, targets = sources_and_targets
    pool = pool_of(8, page_size=3)
    before = numbered(pool)
    pool.move(torch.tensor(sources, dtype=torch.int64), torch.tensor(targets, dtype=torch.int64))
    for index, (keys, values) in enumerate(before):
        expected_keys, expected_values = keys.clone(), values.clone()
        for source, target in zip(sources, targets, strict=True):
            expected_keys[target], expected_values[target] = keys[source], values[source]
        assert torch.equal(pool.layer(index).keys, expected_keys)
        assert torch.equal(pool.layer(index).values, expected_values)
    assert pool.num_free_pages == 8


@pytest.mark.parametrize("shift", [-2, 2])
def test_move_of_ranges_that_overlap(shift):
    pool = pool_of(10)
    before = numbered(pool)
    pool.move(torch.arange(3, 8), torch.arange(3, 8) + shift)
    for index, (keys, values) in enumerate(before):
        assert torch.equal(pool.layer(index).keys[3 + shift : 8 + shift], keys[3:8])
        assert torch.equal(pool.layer(index).values[3 + shift : 8 + shift], values[3:8])


def test_check_sees_a_page_that_went_missing():
    pool = pool_of(4)
    pool._free[2] = 0
    with pytest.raises(LawBroken, match="3 pages are free, 4 are counted"):
        pool.check()


def test_a_run_is_one_run_or_nothing():
    pool = pool_of(12)
    held = pool.allocate(12)
    pool.free([held[page] for page in (1, 2, 5, 6, 7, 8)])
    assert pool.allocate_run(5) is None
    assert pool.num_free_pages == 6
    assert pool.allocate_run(2) == [5, 6], "there is room behind it to grow"
    assert pool.allocate_run(2) == [1, 2]
    assert pool.allocate_run(1) == [7]
    pool.check()


def test_whole_pages_are_moved_in_all_layers():
    pool = pool_of(6, page_size=3)
    for index in range(2):
        layer = pool.layer(index)
        layer.keys.copy_(torch.arange(layer.keys.numel()).view_as(layer.keys))
    before = [pool.layer(index).keys.clone() for index in range(2)]
    pool.move_pages([4, 0], [1, 4])  # one of them is both source and target
    for index, was in enumerate(before):
        assert torch.equal(pool.layer(index).keys[3:6], was[12:15])
        assert torch.equal(pool.layer(index).keys[12:15], was[0:3])
        assert torch.equal(pool.layer(index).keys[0:3], was[0:3])


def test_a_scratch_page_is_never_given_away_and_never_counted() -> None:
    pool = PagePool(KvLayout((GQA,), 4, torch.float32), 3, has_scratch_page=True)
    assert pool.scratch_slot == 12
    assert max(pool.allocate(3)) == 2 and pool.num_free_pages == 0
    assert pool.num_bytes == 3 * pool.layout.bytes_per_page
    pool.check()
    pool.write(0, torch.tensor([pool.scratch_slot]), torch.ones(1, 2, 3), torch.ones(1, 2, 5))
    with pytest.raises(IndexError):
        pool.is_free(3)


def test_a_pool_on_a_cpu_has_none() -> None:
    assert PagePool(KvLayout((GQA,), 4, torch.float32), 3).scratch_slot is None
