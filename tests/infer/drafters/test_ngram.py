from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.errors import UsageError
from deepdraft.infer.drafters import ngram
from deepdraft.infer.drafters.drafter import DraftRequest
from deepdraft.infer.drafters.ngram import MAX_PLACES, NgramDrafter, NgramSettings, NgramText
from deepdraft.infer.drafters.repeat_odds import RepeatOdds
from deepdraft.infer.kernels.select import attention_backend
from deepdraft.infer.kv.layout import KvLayout
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.tree.marginals import Marginals

POOL = PagePool(KvLayout((), 1, torch.float32), 1)
ATTENTION = attention_backend(None, torch.device("cpu"))
TEXTS = st.lists(st.integers(0, 3), max_size=60)


def drafted(drafter: NgramDrafter, *requests: DraftRequest) -> tuple[Marginals, ...]:
    return drafter.draft(requests, POOL, ATTENTION, top_k=8)


def asked(token_ids: Sequence[int], table: PageTable | None = None, **values: Any) -> DraftRequest:
    defaults: dict[str, Any] = {"max_draft_len": 1000, "temperature": 0.0, "seed": 0}
    return DraftRequest(token_ids, table or PageTable(1), **{**defaults, **values})


def draft_of(token_ids: Sequence[int], **settings: int) -> list[int]:
    (found,) = drafted(NgramDrafter(NgramSettings(**settings)), asked(token_ids))
    return found.token_ids[:, 0].tolist()


def plain_follower(token_ids: Sequence[int], min_len: int, max_len: int) -> int | None:
    """By comparing every place, longest n-gram first, latest place first."""
    for length in range(min(max_len, len(token_ids) - 1), min_len - 1, -1):
        end = token_ids[len(token_ids) - length :]
        for stop in range(len(token_ids) - 1, length - 1, -1):
            if token_ids[stop - length : stop] == end:
                return stop
    return None


@given(
    token_ids=TEXTS,
    min_len=st.integers(1, 3),
    further=st.integers(0, 4),
    steps=st.lists(st.integers(1, 60)),
    sizes=st.tuples(st.sampled_from([1, 7, 100]), st.sampled_from([1, 9, 100])),
)
def test_the_longest_end_and_its_latest_occurrence(
    token_ids: list[int], min_len: int, further: int, steps: list[int], sizes: tuple[int, int]
) -> None:
    """However the text came in, wherever the dictionary begins, and in however many blocks the rest is searched."""
    text = NgramText(min_len, RepeatOdds())
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(("INDEXED_LEN", "_BLOCK_LEN"), sizes, strict=True):
            patch.setattr(ngram, name, value)
        for num_tokens in (*sorted(steps), len(token_ids)):
            text.take_in(token_ids[:num_tokens])
        found = text.latest_follower(token_ids, min_len + further)
    assert found == plain_follower(token_ids, min_len, min_len + further)


def test_of_too_many_places_the_latest_are_looked_at() -> None:
    longer = [7, 1, 2, 50]
    others = [token_id for place in range(MAX_PLACES) for token_id in (1, 2, 100 + place)]
    assert draft_of([*longer, *others[3:], 7, 1, 2], draft_len=1) == [50]
    assert draft_of([*longer, *others, 7, 1, 2], draft_len=1) == [100 + MAX_PLACES - 1]


def test_what_followed_is_drafted() -> None:
    text = [5, 1, 2, 3, 40, 41, 42, 43, 9, 1, 2, 3]
    assert draft_of(text, draft_len=3) == [40, 41, 42]
    assert draft_of(text, draft_len=8) == [40, 41, 42, 43, 9, 1, 2, 3]


def test_the_longer_match_goes_before_the_later_one() -> None:
    assert draft_of([1, 2, 3, 50, 8, 2, 3, 60, 1, 2, 3], draft_len=1) == [50]
    assert draft_of([1, 2, 3, 50, 8, 2, 3, 60, 1, 2, 3], draft_len=1, max_ngram_len=2) == [60]
    assert draft_of([1, 2, 3, 50, 1, 2, 3, 60, 1, 2, 3], draft_len=1) == [60]


def test_a_loop_goes_on() -> None:
    """The occurrence reaches up to the end of the text, so what follows it is what is drafted."""
    assert draft_of([7, 1, 2, 1, 2, 1, 2], draft_len=5) == [1, 2, 1, 2, 1]
    assert draft_of([4, 4, 4, 4], draft_len=3) == [4, 4, 4]


@pytest.mark.parametrize("token_ids", [[], [3], [1, 2, 3], [1, 9, 2, 9]])
def test_nothing_where_nothing_is_repeated(token_ids: list[int]) -> None:
    (found,) = drafted(NgramDrafter(), asked(token_ids))
    assert (found.draft_len, found.token_ids.shape[1]) == (0, 1)


def test_a_token_once_more_is_no_repetition_unless_it_is_said_to_be() -> None:
    assert draft_of([1, 9, 2, 9], min_ngram_len=1, draft_len=1) == [2]


def test_probabilities_are_those_of_the_matched_length() -> None:
    """Two tokens match, then each right one makes it one more."""
    (found,) = drafted(NgramDrafter(NgramSettings(draft_len=4)), asked([1, 2, 3, 4, 5, 6, 1, 2]))
    assert (found.log_probs.dtype, found.token_ids.dtype) == (np.float32, np.int64)
    assert np.exp(found.log_probs[:, 0]) == pytest.approx([length / (length + 2) for length in (2, 3, 4, 5)])


def test_what_came_of_drafts_is_counted() -> None:
    """Of two drafters one is asked about texts that go on as they did before, the other about ones that don't; then
    both about a text that neither has seen."""
    probs = []
    for token_id in (3, 9):
        drafter = NgramDrafter(NgramSettings(draft_len=1))
        for first in range(100, 130):
            table, text = PageTable(1), [first, 2, 3, first, 2]
            drafted(drafter, asked(text, table))
            drafted(drafter, asked([*text, token_id], table))
        (found,) = drafted(drafter, asked([50, 2, 3, 50, 2]))
        probs.append(float(np.exp(found.log_probs[0, 0])))
    assert probs[0] > 0.9 and probs[1] < 0.1


def test_no_deeper_than_is_of_use() -> None:
    found = drafted(NgramDrafter(), *(asked([1, 2, 3, 1, 2], max_draft_len=depth) for depth in (0, 2, 100)))
    assert [marginals.draft_len for marginals in found] == [0, 2, 8]


@given(texts=st.lists(TEXTS, min_size=1, max_size=3), data=st.data())
def test_a_text_that_grew_drafts_like_one_that_came_at_once(texts: list[list[int]], data: st.DataObject) -> None:
    """Whatever requests a call has, and however far each came since the last one; temperature doesn't matter."""
    drafter = NgramDrafter(NgramSettings(draft_len=3))
    tables = [PageTable(1) for _ in texts]
    lens = [0] * len(texts)
    for _ in range(4):
        present = data.draw(st.lists(st.sampled_from(range(len(texts))), unique=True))
        for index in present:
            lens[index] = data.draw(st.integers(lens[index], len(texts[index])))
        requests = [asked(texts[index][: lens[index]], tables[index], temperature=0.7) for index in present]
        for index, found in zip(present, drafted(drafter, *requests), strict=True):
            assert found.token_ids[:, 0].tolist() == draft_of(texts[index][: lens[index]], draft_len=3)


def test_a_request_that_is_gone_is_forgotten() -> None:
    drafter, table = NgramDrafter(), PageTable(1)
    drafted(drafter, asked([1, 2, 3, 1, 2], table))
    assert len(drafter._texts) == 1
    del table
    gc.collect()
    assert len(drafter._texts) == 0


def test_a_long_text() -> None:
    """With the token ids of a large vocabulary."""
    repeated = [160_000, 5, 163_839, 11, 12]
    text = [*repeated, *range(1000, 100_000), *repeated[:3]]
    drafter, table = NgramDrafter(NgramSettings(draft_len=2)), PageTable(1)
    for stop in (3000, 60_000, len(text)):
        (found,) = drafted(drafter, asked(text[:stop], table))
    assert found.token_ids[:, 0].tolist() == [11, 12]


@pytest.mark.parametrize(
    "values", [{"draft_len": 0}, {"min_ngram_len": 0}, {"min_ngram_len": 4, "max_ngram_len": 3}], ids=str
)
def test_settings_without_sense(values: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        NgramSettings(**values)
