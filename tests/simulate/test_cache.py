from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deepdraft.simulate.cache import PrefixCache

SEQUENCES = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=24), max_size=8)


def shared_len(first: list[int], second: list[int]) -> int:
    length = 0
    while length < min(len(first), len(second)) and first[length] == second[length]:
        length += 1
    return length


@given(SEQUENCES, st.lists(st.integers(0, 3), min_size=1, max_size=24), st.integers(1, 5))
def test_longest_prefix_in_whole_pages(past: list[list[int]], prompt: list[int], page_size: int) -> None:
    cache = PrefixCache(capacity=10_000, page_size=page_size)
    for ids in past:
        cache.insert(ids)
    whole = [ids[: len(ids) // page_size * page_size] for ids in past]
    expected = max((shared_len(ids, prompt) for ids in whole), default=0)
    # the last prompt token is always computed
    expected = min(expected, len(prompt) - 1) // page_size * page_size
    assert cache.match_len(prompt) == expected


@given(SEQUENCES, st.integers(1, 40), st.integers(1, 4))
def test_never_more_than_its_capacity(past: list[list[int]], capacity: int, page_size: int) -> None:
    cache = PrefixCache(capacity=capacity, page_size=page_size)
    for ids in past:
        cache.insert(ids)
        assert cache.num_tokens <= capacity


def test_the_oldest_goes_first() -> None:
    cache = PrefixCache(capacity=20, page_size=1)
    old, used, new = [1] * 10, [2] * 10, [3] * 10
    cache.insert(used)
    cache.insert(old)
    cache.match_len([*used, 9])
    cache.insert(new)
    assert cache.match_len([*used, 9]) == 10
    assert cache.match_len([*old, 9]) == 0


def test_salts_never_meet() -> None:
    cache = PrefixCache(capacity=1000, page_size=1)
    cache.insert([1, 2, 3, 4], namespace="a")
    assert cache.match_len([1, 2, 3, 4], namespace="b") == 0
    assert cache.match_len([1, 2, 3, 4], namespace="a") == 3


def test_clear_forgets() -> None:
    cache = PrefixCache(capacity=1000, page_size=1)
    cache.insert([1, 2, 3, 4])
    cache.clear()
    assert cache.match_len([1, 2, 3, 4]) == 0
    assert cache.num_tokens == 0


def test_a_longer_sequence_takes_the_place_of_its_prefix() -> None:
    cache = PrefixCache(capacity=1000, page_size=1)
    cache.insert(list(range(50)))
    cache.insert(list(range(80)))
    cache.insert(list(range(60)))
    assert cache.num_tokens == 80
