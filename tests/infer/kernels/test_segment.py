import pytest
import torch
from attention_case import case
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.kernels.plan import SlotRun
from deepdraft.infer.kernels.segment import PageList, cut, read, reading, segments, token_range

CACHE = torch.arange(4096).view(4096, 1, 1)


def slots_of(found) -> list[int]:
    return [slot for segment in found for slot in read(CACHE, segment).flatten().tolist()]


@st.composite
def listed(draw: st.DrawFn):
    """Pages of which some follow each other, and a number of tokens in them."""
    page_size = draw(st.sampled_from((1, 3, 16, 64)))
    runs = draw(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 6)), min_size=1, max_size=6))
    pages = [page for first, count in runs for page in range(first, first + count)]
    num_tokens = draw(st.integers(1, len(pages) * page_size))
    slots = [page * page_size + within for page in pages for within in range(page_size)][:num_tokens]
    return torch.tensor(pages), page_size, slots


@settings(deadline=None)
@given(listed(), st.integers(1, 400))
def test_segments_are_the_tokens_in_order_and_none_is_copied_in_large(pages_and_slots, block_len):
    pages, page_size, slots = pages_and_slots
    whole = CACHE[: 4096 // page_size * page_size]
    found = segments(pages, len(slots), page_size=page_size, block_len=block_len)
    assert [slot for segment in found for slot in read(whole, segment).flatten().tolist()] == slots
    for segment in found:
        if isinstance(segment, PageList):
            assert segment.num_slots <= max(block_len, page_size)
    pieces = list(cut(found, block_len))
    assert [slot for piece in pieces for slot in read(whole, piece).flatten().tolist()] == slots
    assert all(piece.num_slots <= max(block_len, page_size) for piece in pieces)


@settings(deadline=None)
@given(listed(), st.data())
def test_a_token_range_is_one_segment(pages_and_slots, draw):
    pages, page_size, slots = pages_and_slots
    start = draw.draw(st.integers(0, len(slots) - 1))
    whole = CACHE[: 4096 // page_size * page_size]
    found = token_range(pages, start, len(slots), page_size=page_size)
    assert read(whole, found).flatten().tolist() == slots[start:]


def test_a_long_run_is_read_where_it_lies():
    pages = torch.tensor([9, 10, 11, 3, 20, 21, 22, 23])
    found = segments(pages, 8 * 16 - 5, page_size=16, block_len=48)
    assert [type(segment) for segment in found] == [SlotRun, PageList, SlotRun]
    assert found[0] == SlotRun(9 * 16, 48)
    assert found[2] == SlotRun(20 * 16, 59)
    assert read(CACHE, found[0]).data_ptr() == CACHE[9 * 16].data_ptr()
    assert read(CACHE, found[1]).data_ptr() != CACHE[3 * 16].data_ptr()


def test_no_tokens_no_segments():
    assert segments(torch.tensor([4, 5]), 0, page_size=16, block_len=16) == ()


def test_a_last_page_is_cut_before_rows_that_were_never_written():
    found = segments(torch.tensor([5, 2]), 17, page_size=16, block_len=64)
    assert slots_of(found) == [*range(80, 96), 32]


def test_one_query_needs_no_tail():
    one = reading(case([1], [40]).plan, 0, block_len=16)
    assert (one.tail, one.mask) == (None, None)
    assert slots_of(one.prefix) == case([1], [40]).plan.slots[0].tolist()


def test_queries_are_the_tail_and_the_rest_is_prefix():
    plan = case([10], [40], is_shuffled=True).plan
    several = reading(plan, 0, block_len=16)
    assert several.tail is not None
    assert slots_of([*several.prefix, several.tail]) == plan.slots[0].tolist()
    assert several.tail.num_slots == 10


@pytest.mark.parametrize("page_size", [1, 16])
def test_a_plan_of_many_pages_takes_no_step_per_page(page_size):
    """The number of Python objects made must not grow with the number of pages: 10^5 of them took 0.3 s a step."""
    pages = torch.randperm(100_000)
    found = segments(pages, 100_000 * page_size, page_size=page_size, block_len=10_000)
    assert len(found) <= 10 * page_size + 1
