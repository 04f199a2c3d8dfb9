import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kv.page_table import PageTable


@st.composite
def tables_with_a_range(draw):
    page_size = draw(st.sampled_from([1, 2, 3, 16]))
    pages = draw(st.lists(st.integers(0, 50), max_size=8, unique=True))
    start = draw(st.integers(0, len(pages) * page_size))
    stop = draw(st.integers(start, len(pages) * page_size))
    return PageTable(page_size, pages), start, stop


@given(tables_with_a_range())
def test_slots_are_those_of_the_positions(table_and_range):
    table, start, stop = table_and_range
    every = [page * table.page_size + within for page in table.pages for within in range(table.page_size)]
    slots = table.slots(start, stop)
    assert slots.dtype == torch.int64
    assert slots.tolist() == every[start:stop] == [table.slot(position) for position in range(start, stop)]


@given(tables_with_a_range())
def test_slots_agree_with_those_of_an_attention_plan(table_and_range):
    table, start, stop = table_and_range
    if start == stop:
        return
    plan = AttentionPlan.of(page_size=table.page_size, query_lens=[stop - start], kv_lens=[stop], pages=[table.pages])
    assert plan.slots[0][start:].tolist() == table.slots(start, stop).tolist()


@pytest.mark.parametrize(("start", "stop"), [(0, 7), (-1, 2), (3, 2), (7, 7)])
def test_positions_beyond_the_pages_are_refused(start, stop):
    with pytest.raises(ValueError, match=f"positions {start}:{stop} .* room for 6"):
        PageTable(3, [5, 2]).slots(start, stop)


@pytest.mark.parametrize("position", [-1, 6])
def test_one_position_beyond_the_pages_is_refused(position):
    with pytest.raises(ValueError, match="room for 6"):
        PageTable(3, [5, 2]).slot(position)


@given(st.integers(1, 20), st.integers(0, 10), st.integers(0, 300))
def test_as_many_pages_as_are_missing_and_no_more(page_size, num_pages, num_tokens):
    table = PageTable(page_size, list(range(num_pages)))
    missing = table.num_pages_to_reach(num_tokens)
    table.pages.extend(range(num_pages, num_pages + missing))
    assert table.capacity >= num_tokens
    assert missing == 0 or table.capacity - page_size < num_tokens


def test_tables_do_not_share_pages_by_default():
    one, other = PageTable(4), PageTable(4)
    one.pages.append(7)
    assert list(other.pages) == []
    assert other.num_tokens == 0
