from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.errors import UsageError
from deepdraft.infer.drafters.draft_window import DraftWindow
from deepdraft.infer.kv.page_table import PageTable


@given(
    num_tokens=st.integers(0, 60),
    page_size=st.integers(1, 9),
    window=st.integers(1, 70),
    sink=st.integers(0, 70),
    scratch_len=st.integers(1, 10),
    num_spare_pages=st.integers(0, 3),
)
def test_the_listed_pages_hold_what_is_to_be_seen_once_and_in_order(
    num_tokens: int, page_size: int, window: int, sink: int, scratch_len: int, num_spare_pages: int
) -> None:
    stop = num_tokens + scratch_len
    num_pages = -(-stop // page_size) + num_spare_pages
    table = PageTable(page_size, [3 * page + 1 for page in range(num_pages)], num_tokens)
    pages, kv_len = DraftWindow(window, sink).seen(table, scratch_len)
    places = [table.pages.index(page) for page in pages]
    assert places == sorted(set(places))
    positions = [place * page_size + within for place in places for within in range(page_size)][:kv_len]
    assert positions[-scratch_len:] == list(range(num_tokens, stop))
    due = {p for p in range(num_tokens) if p < sink or p >= num_tokens - window}
    whole_pages = {p for p in range(num_tokens) if {p // page_size} & {each // page_size for each in due}}
    assert due <= set(positions[:-scratch_len]) <= whole_pages


def test_without_a_window_all_is_seen() -> None:
    table = PageTable(4, [7, 3, 9, 1], 9)
    pages, num_tokens = DraftWindow().seen(table, 2)
    assert (list(pages), num_tokens) == ([7, 3, 9], 11)


@pytest.mark.parametrize(
    ("window", "sink", "message"),
    [(0, 0, "a draft window of 0"), (5, -1, "a draft sink of -1"), (None, 4, "without a draft window")],
)
def test_lengths_without_sense(window: int | None, sink: int, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        DraftWindow(window, sink)
