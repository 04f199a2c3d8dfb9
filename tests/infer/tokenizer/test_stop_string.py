from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.tokenizer.stop_string import StopFinder


def pushed(text: str, stop: tuple[str, ...], cuts: list[int]) -> tuple[str, str | None]:
    """All the text handed out when it comes in pieces, and the stop string that was found."""
    finder = StopFinder(stop)
    borders = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    pieces = [text[start:end] for start, end in pairwise(borders)]
    return "".join(map(finder.push, pieces)) + finder.finish(), finder.found


def expected(text: str, stop: tuple[str, ...]) -> tuple[str, str | None]:
    """The text before the stop string that is completed first, by looking at every end in turn."""
    for end in range(1, len(text) + 1):
        complete = [string for string in stop if text[:end].endswith(string)]
        if complete:
            found = max(complete, key=len)
            return text[: end - len(found)], found
    return text, None


few_letters = st.text("ab", max_size=40)
stops = st.lists(st.text("ab", min_size=1, max_size=6), max_size=3).map(tuple)


@settings(deadline=None)
@given(few_letters, stops, st.lists(st.integers(0, 40)))
def test_the_pieces_do_not_matter(text: str, stop: tuple[str, ...], cuts: list[int]) -> None:
    assert pushed(text, stop, cuts) == expected(text, stop)


@settings(deadline=None)
@given(few_letters, stops)
def test_no_more_is_held_back_than_can_become_a_stop_string(text: str, stop: tuple[str, ...]) -> None:
    finder = StopFinder(stop)
    beginnings = [string[:length] for string in stop for length in range(1, len(string))]
    num_given = 0
    for end, character in enumerate(text, start=1):
        num_given += len(finder.push(character))
        if finder.found is not None:
            return
        held = max((len(beginning) for beginning in beginnings if text[:end].endswith(beginning)), default=0)
        assert num_given == end - held


def test_nothing_comes_after_a_stop_string() -> None:
    finder = StopFinder(("END",))
    assert finder.push("so it ENDs here") == "so it "
    assert finder.push("more") == ""
    assert finder.finish() == ""
    assert finder.found == "END"


def test_without_stop_strings_all_goes_through() -> None:
    finder = StopFinder(())
    assert finder.push("abc") == "abc"
    assert finder.finish() == ""


def test_a_stop_string_must_begin_where_stopping_is_allowed() -> None:
    finder = StopFinder(("stop",))
    assert finder.push("st", can_stop=True) == ""
    assert finder.push("op stop st", can_stop=False) == "stop stop st"
    assert finder.push("op") == "op"
    assert finder.push(" stop") == " "
    assert finder.found == "stop"


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopFinder(("a", ""))
