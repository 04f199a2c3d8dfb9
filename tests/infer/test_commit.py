"""Tokens are appended up to the one that ends the request, however many are offered at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.commit import commit
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.sequence import Sequence
from deepdraft.infer.tokenizer.detokenizer import Detokenizer

EOS = 256
MakeSequence = Callable[..., Sequence]


@pytest.fixture(scope="module")
def make_sequence(tiny_llama: Any, make_request: Any) -> MakeSequence:
    def make(*, ignore_eos: bool = False, **params: Any) -> Sequence:
        request = make_request("a", b"prompt", **{"max_tokens": 100, "ignore_eos": ignore_eos, **params})
        return Sequence(
            request=request,
            arrival_index=0,
            seed=0,
            end_token_ids=frozenset(request.sampling.stop_token_ids) | (set() if ignore_eos else {EOS}),
            token_ids=list(request.prompt_token_ids),
            page_table=PageTable(4),
            detokenizer=Detokenizer(tiny_llama.tokenizer, request.sampling.stop),
        )

    return make


def test_one_token_at_a_time(make_sequence: MakeSequence) -> None:
    sequence = make_sequence(max_tokens=3)
    results = [commit(sequence, [token_id]) for token_id in b"abc"]
    assert [(result.num_tokens, result.text, result.finish_reason) for result in results] == [
        (1, "a", None),
        (1, "b", None),
        (1, "c", "length"),
    ]
    assert bytes(sequence.token_ids) == b"promptabc"


def test_eos_counts_but_is_not_text_and_drops_the_rest(make_sequence: MakeSequence) -> None:
    sequence = make_sequence()
    result = commit(sequence, [*b"ab", EOS, *b"cd"])
    assert (result.num_tokens, result.text, result.finish_reason) == (3, "ab", "stop")
    assert sequence.num_output_tokens == 3


def test_eos_ignored(make_sequence: MakeSequence) -> None:
    result = commit(make_sequence(ignore_eos=True), [*b"ab", EOS, *b"cd"])
    assert (result.num_tokens, result.text, result.finish_reason) == (5, "abcd", None)


def test_stop_token_ids_end_even_where_eos_is_ignored(make_sequence: MakeSequence) -> None:
    result = commit(make_sequence(ignore_eos=True, stop_token_ids=(ord("c"),)), [EOS, *b"abcd"])
    assert (result.num_tokens, result.text, result.finish_reason) == (4, "ab", "stop")


def test_max_tokens_inside_several(make_sequence: MakeSequence) -> None:
    result = commit(make_sequence(max_tokens=2), b"abcd")
    assert (result.num_tokens, result.text, result.finish_reason) == (2, "ab", "length")


def test_an_end_at_the_last_token_allowed_is_a_stop(make_sequence: MakeSequence) -> None:
    assert commit(make_sequence(max_tokens=2), [97, EOS]).finish_reason == "stop"
    assert commit(make_sequence(max_tokens=2, stop=("b",)), b"ab").finish_reason == "stop"


def test_a_stop_string_across_tokens(make_sequence: MakeSequence) -> None:
    sequence = make_sequence(stop=("XYZ",))
    assert commit(sequence, b"abX").text == "ab"
    assert commit(sequence, b"Y").text == ""
    result = commit(sequence, b"Zcd")
    assert (result.num_tokens, result.text, result.finish_reason) == (1, "", "stop")


def test_what_was_held_back_comes_at_the_end(make_sequence: MakeSequence) -> None:
    sequence = make_sequence(stop=("XYZ",), max_tokens=4)
    assert commit(sequence, b"abX").text == "ab"
    assert commit(sequence, b"Y").text == "XY"


def test_min_tokens_hold_off_stop_strings(make_sequence: MakeSequence) -> None:
    result = commit(make_sequence(stop=("b",), min_tokens=3), b"abbbc")
    assert (result.num_tokens, result.text, result.finish_reason) == (4, "abb", "stop")


def test_blocked_tokens_until_min_tokens(make_sequence: MakeSequence) -> None:
    sequence = make_sequence(min_tokens=2, stop_token_ids=(5,))
    assert sequence.blocked_token_ids() == (5, EOS)
    commit(sequence, b"a")
    assert sequence.blocked_token_ids() == (5, EOS)
    commit(sequence, b"b")
    assert sequence.blocked_token_ids() == ()


def test_whole_characters(make_sequence: MakeSequence) -> None:
    sequence = make_sequence()
    pieces = [commit(sequence, [byte]).text for byte in "é€".encode()]
    assert pieces == ["", "é", "", "", "€"]


@given(
    output=st.lists(st.sampled_from([*b"abXY", EOS]), min_size=1, max_size=12),
    cuts=st.lists(st.integers(1, 4), min_size=12, max_size=12),
    max_tokens=st.integers(1, 12),
    min_tokens=st.integers(0, 3),
    stop=st.sampled_from([(), ("XY",), ("aX", "bb")]),
    ignore_eos=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_several_at_once_end_as_one_by_one(
    make_sequence: MakeSequence,
    output: list[int],
    cuts: list[int],
    max_tokens: int,
    min_tokens: int,
    stop: tuple[str, ...],
    ignore_eos: bool,
) -> None:
    def through(groups: list[list[int]]) -> tuple[list[int], str, str | None]:
        sequence = make_sequence(
            max_tokens=max_tokens, min_tokens=min(min_tokens, max_tokens), stop=stop, ignore_eos=ignore_eos
        )
        text = ""
        for group in groups:
            result = commit(sequence, group)
            text += result.text
            if result.finish_reason is not None:
                return sequence.token_ids, text, result.finish_reason
        return sequence.token_ids, text, None

    grouped, rest = [], output
    for size in cuts:
        grouped.append(rest[:size])
        rest = rest[size:]
    assert through([group for group in grouped if group]) == through([[token_id] for token_id in output])
