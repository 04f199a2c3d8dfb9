"""The stretch that is moved is made of whole runs, fits the bound, and there is no better one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from deepdraft.infer.kv.defragment import run_lens, scattered_stretch

PAGES = st.lists(st.integers(0, 12), max_size=14)


@given(PAGES)
def test_runs(pages: list[int]) -> None:
    lens = run_lens(pages)
    assert sum(lens) == len(pages)
    assert len(lens) == sum(second != first + 1 for first, second in pairwise(pages)) + bool(pages)


@given(PAGES, st.integers(1, 8))
def test_the_stretch_against_all_there_are(pages: list[int], max_pages: int) -> None:
    num_breaks = len(run_lens(pages))
    whole_runs = [
        (len(run_lens(pages[start:stop])), start, stop)
        for start in range(len(pages))
        for stop in range(start + 1, min(start + max_pages, len(pages)) + 1)
        if len(run_lens(pages[:start])) + len(run_lens(pages[start:stop])) + len(run_lens(pages[stop:])) == num_breaks
    ]
    best = max(whole_runs, key=lambda found: (found[0], -found[1]), default=(0, 0, 0))
    found = scattered_stretch(pages, max_pages)
    if best[0] < 2:
        assert found is None
    else:
        assert found is not None
        assert found[0] == best[1] and len(run_lens(pages[slice(*found)])) == best[0]
        assert found[1] - found[0] <= max_pages


def test_moving_comes_to_an_end() -> None:
    """Whatever is moved, fewer runs are left, until no two neighbours fit the bound together."""
    pages, next_free = [0, 10, 20, 21, 30, 40, 41, 42, 50], 100
    num_runs = [len(run_lens(pages))]
    while (stretch := scattered_stretch(pages, 4)) is not None:
        start, stop = stretch
        pages[start:stop] = range(next_free, next_free + stop - start)
        next_free += 100
        num_runs.append(len(run_lens(pages)))
    assert num_runs == sorted(num_runs, reverse=True) and len(set(num_runs)) == len(num_runs)
    assert all(first + second > 4 for first, second in pairwise(run_lens(pages)))
