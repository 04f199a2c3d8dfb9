"""Pages go to one place at a time: free, a sequence's own, or the radix cache's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from deepdraft.infer.errors import LawBroken
from deepdraft.infer.kv.defragment import run_lens
from deepdraft.infer.kv.layout import KvLayout, LayerShape
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.page_ledger import PageLedger
from deepdraft.infer.sequence import Sequence
from deepdraft.infer.tokenizer.detokenizer import Detokenizer

PAGE = 4
LAYOUT = KvLayout((LayerShape(1, 2, 2, is_latent=False),), PAGE, torch.float32)
MakeSequence = Callable[..., Sequence]


@pytest.fixture(scope="module")
def make_sequence(tiny_llama: Any, make_request: Any) -> MakeSequence:
    def make(prompt: list[int], output: tuple[int, ...] = ()) -> Sequence:
        return Sequence(
            request=make_request("a", prompt),
            arrival_index=0,
            seed=0,
            end_token_ids=frozenset(),
            token_ids=[*prompt, *output],
            page_table=PageTable(PAGE),
            detokenizer=Detokenizer(tiny_llama.tokenizer),
        )

    return make


def ledger(num_pages: int, *, has_radix_cache: bool = True) -> PageLedger:
    return PageLedger(PagePool(LAYOUT, num_pages), has_radix_cache=has_radix_cache)


def prefilled(pages: PageLedger, sequence: Sequence) -> Sequence:
    assert pages.admit(sequence, num_spare_pages=0)
    sequence.page_table.num_tokens = sequence.prefill_len
    return sequence


def test_a_prompt_finds_the_whole_pages_of_an_earlier_one(make_sequence: MakeSequence) -> None:
    pages = ledger(8)
    first = prefilled(pages, make_sequence(list(range(10))))
    pages.publish(first)
    pages.check([first])
    assert (first.num_shared_pages, first.num_private_pages) == (2, 1)
    second = make_sequence([*range(6), 99, 98, 97])
    assert pages.admit(second, num_spare_pages=0)
    assert second.num_cached_tokens == second.page_table.num_tokens == 4
    assert second.page_table.pages[0] == first.page_table.pages[0]
    pages.check([first, second])
    assert pages.num_free_pages == 8 - 3 - 2


@pytest.mark.parametrize(("num_tokens", "expected"), [(7, 4), (8, 4), (9, 8)])
def test_the_last_prompt_token_is_always_left_to_run(
    make_sequence: MakeSequence, num_tokens: int, expected: int
) -> None:
    pages = ledger(8)
    pages.publish(prefilled(pages, make_sequence(list(range(12)))))
    again = make_sequence(list(range(num_tokens)))
    assert pages.admit(again, num_spare_pages=0)
    assert again.num_cached_tokens == expected


def test_a_sequence_with_output_may_be_cached_in_full(make_sequence: MakeSequence) -> None:
    pages = ledger(8)
    first = prefilled(pages, make_sequence(list(range(7)), (50, 51)))
    assert first.page_table.num_tokens == 8
    pages.publish(first)
    pages.release(first)
    assert pages.admit(first, num_spare_pages=0)
    assert first.can_decode
    assert first.num_cached_tokens == 0, "what counts is the first admission"


def test_release_frees_what_is_not_shared(make_sequence: MakeSequence) -> None:
    pages = ledger(8)
    sequence = prefilled(pages, make_sequence(list(range(10))))
    pages.release(sequence)
    assert (pages.num_free_pages, pages.num_cached_pages) == (8, 0)
    sequence = prefilled(pages, make_sequence(list(range(10))))
    pages.publish(sequence)
    pages.release(sequence)
    assert (pages.num_free_pages, pages.num_cached_pages, pages.num_evictable_pages) == (6, 2, 2)
    assert (list(sequence.page_table.pages), sequence.page_table.num_tokens, sequence.node) == ([], 0, None)
    pages.check([])


def test_of_equal_prompts_computed_at_once_one_copy_stays(make_sequence: MakeSequence) -> None:
    pages = ledger(8)
    first, second = (prefilled(pages, make_sequence(list(range(10)))) for _ in range(2))
    assert pages.num_free_pages == 2
    pages.publish(first)
    pages.publish(second)
    assert second.page_table.pages[:2] == first.page_table.pages[:2]
    assert second.page_table.pages[2] != first.page_table.pages[2]
    assert pages.num_free_pages == 4
    pages.check([first, second])
    pages.release(first)
    assert pages.num_evictable_pages == 0, "the second still uses them"
    pages.release(second)
    assert pages.num_evictable_pages == 2


def test_admission_evicts_but_never_what_runs(make_sequence: MakeSequence) -> None:
    pages = ledger(6)
    done = prefilled(pages, make_sequence(list(range(100, 112))))
    pages.publish(done)
    pages.release(done)
    runs = prefilled(pages, make_sequence(list(range(8))))
    pages.publish(runs)
    assert (pages.num_free_pages, pages.num_cached_pages, pages.num_evictable_pages) == (1, 5, 3)
    assert not pages.admit(make_sequence(list(range(50, 67))), num_spare_pages=0)
    waits = make_sequence(list(range(50, 63)))
    assert not pages.admit(waits, num_spare_pages=1)
    assert waits.node is None and not waits.page_table.pages
    assert pages.admit(waits, num_spare_pages=0)
    assert (pages.num_free_pages, pages.num_cached_pages) == (0, 2)
    pages.check([runs, waits])


def test_an_own_match_does_not_count_as_room(make_sequence: MakeSequence) -> None:
    pages = ledger(4)
    done = prefilled(pages, make_sequence(list(range(12))))
    pages.publish(done)
    pages.release(done)
    longer = make_sequence(list(range(20)))
    assert not pages.admit(longer, num_spare_pages=0)
    assert pages.num_evictable_pages == 3
    assert pages.admit(make_sequence(list(range(16))), num_spare_pages=0)


def test_grow_takes_a_page_when_one_is_needed(make_sequence: MakeSequence) -> None:
    pages = ledger(3)
    sequence = prefilled(pages, make_sequence(list(range(8))))
    assert pages.grow(sequence, 8) and len(sequence.page_table.pages) == 2
    assert pages.grow(sequence, 9) and len(sequence.page_table.pages) == 3
    assert not pages.grow(sequence, 13)
    assert len(sequence.page_table.pages) == 3


def test_growing_continues_the_run_of_pages(make_sequence: MakeSequence) -> None:
    pages = ledger(8)
    first = prefilled(pages, make_sequence(list(range(8))))
    second = prefilled(pages, make_sequence(list(range(50, 54))))
    assert pages.grow(second, 12)
    assert list(second.page_table.pages) == [2, 3, 4]
    pages.release(first)
    assert pages.grow(second, 16)
    assert list(second.page_table.pages) == [2, 3, 4, 5]


def test_clear_waits_for_the_running(make_sequence: MakeSequence) -> None:
    pages = ledger(8)
    sequence = prefilled(pages, make_sequence(list(range(10))))
    pages.publish(sequence)
    assert not pages.clear()
    pages.release(sequence)
    assert pages.clear()
    assert pages.num_free_pages == 8


def test_without_a_radix_cache_nothing_is_kept(make_sequence: MakeSequence) -> None:
    pages = ledger(8, has_radix_cache=False)
    first = prefilled(pages, make_sequence(list(range(10))))
    pages.publish(first)
    second = prefilled(pages, make_sequence(list(range(10))))
    assert second.num_cached_tokens == 0
    pages.check([first, second])
    pages.release(first)
    pages.release(second)
    assert pages.num_free_pages == 8
    assert pages.clear()


def test_stretch_gives_what_there_is(make_sequence: MakeSequence) -> None:
    pages = ledger(6)
    cached = prefilled(pages, make_sequence(list(range(50, 58))))
    pages.publish(cached)
    pages.release(cached)
    sequence = prefilled(pages, make_sequence(list(range(10))))
    assert pages.stretch(sequence, 11) == 11 and len(sequence.page_table.pages) == 3
    assert pages.stretch(sequence, 21) == 21, "what is cached and unused makes room"
    assert pages.stretch(sequence, 99) == 24 == sequence.page_table.capacity
    assert (pages.num_free_pages, pages.num_cached_pages) == (0, 0)
    pages.trim(sequence)
    assert (len(sequence.page_table.pages), pages.num_free_pages) == (3, 3)
    pages.trim(sequence)
    pages.check([sequence])


def test_trim_leaves_shared_pages(make_sequence: MakeSequence) -> None:
    pages = ledger(8)
    sequence = prefilled(pages, make_sequence(list(range(8))))
    pages.publish(sequence)
    pages.stretch(sequence, 20)
    pages.trim(sequence)
    assert (len(sequence.page_table.pages), sequence.num_shared_pages) == (2, 2)
    pages.check([sequence])


def test_a_page_that_is_shared_holds_tokens_only(make_sequence: MakeSequence) -> None:
    pages = ledger(8)
    sequence = prefilled(pages, make_sequence(list(range(9))))
    pages.publish(sequence)
    sequence.page_table.num_tokens = 7
    with pytest.raises(LawBroken, match="tokens"):
        pages.check([sequence])


def test_defragment_moves_own_pages_into_one_run(make_sequence: MakeSequence) -> None:
    pool = PagePool(LAYOUT, 40)
    pages = PageLedger(pool, has_radix_cache=True)
    keys = pool.layer(0).keys
    sequences = [prefilled(pages, make_sequence([number, *range(7)])) for number in range(2)]
    for sequence in sequences:
        pages.publish(sequence)
    for length in range(9, 33):
        for sequence in sequences:
            assert pages.grow(sequence, length)
            sequence.page_table.num_tokens = length
            keys[sequence.page_table.slot(length - 1)] = 100.0 * length + sequence.token_ids[0]
    first = sequences[0]
    shared, own = first.page_table.pages[:2], first.page_table.pages[2:]
    assert len(run_lens(own)) == 6
    assert pages.defragment(first, 4) == 4
    assert len(run_lens(first.page_table.pages[2:])) == 3
    assert pages.defragment(first, 64) == 6
    assert pages.defragment(first, 64) == 0
    assert first.page_table.pages[:2] == shared and len(run_lens(first.page_table.pages[2:])) == 1
    for sequence in sequences:
        for length in range(9, 33):
            assert (keys[sequence.page_table.slot(length - 1)] == 100.0 * length + sequence.token_ids[0]).all()
    pages.check(sequences)
    assert pages.num_free_pages == 40 - 2 * 8


def test_defragment_without_a_free_run_leaves_all_as_it_is(make_sequence: MakeSequence) -> None:
    pages = ledger(8)
    sequences = [prefilled(pages, make_sequence([number, 1, 2])) for number in range(2)]
    for length in range(4, 17):
        for sequence in sequences:
            assert pages.grow(sequence, length)
            sequence.page_table.num_tokens = length
    before = list(sequences[0].page_table.pages)
    assert pages.defragment(sequences[0], 64) == 0
    assert list(sequences[0].page_table.pages) == before
    pages.check(sequences)
