"""Frames, facts and cuts."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from deepdraft.bench.fitting.frame import Ask, Cut, Frame, check_room, cut_to_count, fact_index, take, with_fact
from deepdraft.errors import UsageError

PIECES = st.lists(st.text("ab \n", min_size=1, max_size=9), min_size=1, max_size=30)


def test_a_frame_puts_its_parts_in_order() -> None:
    frame = Frame(lead="\n", tail_lead="#", ending=" and so on.")
    assert frame.rest("x = 1\n", ("one", "two")) == "\nx = 1\n# one two and so on."
    assert frame.rest("") == "\n# and so on."


@given(PIECES, st.floats(0, 1))
def test_a_fact_stands_between_the_two_pieces_nearest_to_its_depth(pieces: list[str], depth_frac: float) -> None:
    text = with_fact(pieces, "<fact>", depth_frac)
    before, after = text.split("<fact>")
    assert before + after == "".join(pieces)
    ends = [len("".join(pieces[:index])) for index in range(len(pieces) + 1)]
    wanted = depth_frac * ends[-1]
    assert len(before) in ends
    assert abs(len(before) - wanted) == min(abs(end - wanted) for end in ends)
    assert with_fact(pieces, None, depth_frac) == "".join(pieces)


def test_a_fact_does_not_part_what_belongs_together() -> None:
    pieces = ["one\n", "\n", "two\n", "three\n"]
    assert fact_index(pieces, 4.0) == 1
    assert fact_index(pieces, 4.0, lambda before, after: bool(before.strip() and after.strip())) == 0
    assert fact_index(pieces, 8.0, lambda before, after: bool(before.strip() and after.strip())) == 3


@given(PIECES, st.integers(0, 300), st.floats(0, 300))
def test_a_cut_keeps_its_fact(pieces: list[str], length_chars: int, fact_after_chars: float) -> None:
    cut = Cut(pieces, "<fact>", fact_after_chars)
    body = cut.body(min(length_chars, cut.max_chars))
    assert body.count("<fact>") == 1
    assert body.replace("<fact>", "") == "".join(pieces)[:length_chars]


@example(9, 47, 0, 0.5)
@given(st.integers(1, 9), st.integers(0, 3_000), st.integers(0, 10_000), st.floats(0.5, 12))
def test_a_cut_finds_the_count_of_any_steady_counter(
    chars_per_token: int, want_len: int, start_chars: int, slope: float
) -> None:
    counts = 0

    async def count_at(length_chars: int) -> int:
        nonlocal counts
        counts += 1
        return 5 + length_chars // chars_per_token

    max_chars = 40_000
    at, total_len = asyncio.run(cut_to_count(count_at, want_len, start_chars, max_chars, slope, 60))
    assert total_len == 5 + at // chars_per_token
    assert 0 <= at <= max_chars
    assert total_len == max(5, min(want_len, 5 + max_chars // chars_per_token))
    assert counts <= 60


def test_a_cut_of_a_counter_with_steps_comes_as_near_as_it_can() -> None:
    async def count_at(length_chars: int) -> int:
        return 10 * (length_chars // 40)

    at, total_len = asyncio.run(cut_to_count(count_at, 104, 0, 4_000, 4.0, 40))
    assert total_len in (100, 110)
    assert at // 40 * 10 == total_len


def test_pieces_are_taken_until_there_are_enough() -> None:
    pieces = iter(["one", "two", "three"])
    assert take(pieces, 4) == ["one", "two"]
    assert take(pieces, 0) == ["three"]


def test_a_prompt_without_room_names_the_minimum() -> None:
    ask = Ask(total_len=20, seed=1, frame=Frame("", "", "."))
    assert check_room(ask, 20) == 0
    with pytest.raises(UsageError, match="20 tokens is too short: 21 go to") as caught:
        check_room(ask, 21)
    assert "21 tokens" in (caught.value.hint or "")
