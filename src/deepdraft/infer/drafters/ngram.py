"""Prompt lookup: what followed the same words before is likely to follow them again (Saxena, "Prompt Lookup
Decoding", 2023). No weights, no pool; strong where output repeats the prompt (edits, quotes, code), else silent.

The longest n-gram that ends the text and stands in it once more decides; of several such places the latest does. How
sure that is follows from how much further back the two places agree (`repeat_odds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from torch import Tensor

from deepdraft.errors import UsageError
from deepdraft.infer.batch import Rows
from deepdraft.infer.drafters.drafter import DraftRequest
from deepdraft.infer.drafters.repeat_odds import MAX_MATCHED_LEN, RepeatOdds
from deepdraft.infer.kernels.attention import AttentionBackend
from deepdraft.infer.kv.layout import LayerShape
from deepdraft.infer.kv.page_table import PageTable
from deepdraft.infer.kv.pool import PagePool
from deepdraft.infer.tree.marginals import NOTHING, Marginals

TokenIds = npt.NDArray[np.int32]

INDEXED_LEN = 1 << 14
"""Tokens at the end of a text that are put into a dictionary when it comes in (7 ms), beside those that follow."""
MAX_PLACES = 128
"""Places behind the same n-gram that are compared further, the latest first: of a long output's common ones there are
many, and it is the late ones that are repeated."""
_BLOCK_LEN = 1 << 14
"""Tokens searched at a time, the latest first: where the longest match is found early, the rest isn't read."""
_NOWHERE = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NgramSettings:
    """How prompt lookup drafts. Raises UsageError for values without sense."""

    draft_len: int = 8
    min_ngram_len: int = 2
    """Shorter repetitions are taken for chance."""
    max_ngram_len: int = 5
    """Of ends that are as long or longer the latest is taken."""

    def __post_init__(self) -> None:
        if self.draft_len < 1:
            raise UsageError(f"a draft of {self.draft_len} tokens", hint="an n-gram drafter drafts 1 or more")
        if not 1 <= self.min_ngram_len <= self.max_ngram_len:
            raise UsageError(f"n-grams of {self.min_ngram_len} to {self.max_ngram_len} tokens", hint="at least 1")


class NgramDrafter:
    """A `Drafter` by prompt lookup.

    Keeps the text of each request that it was asked for, so that a call takes in the new tokens only, and what it
    said last, to count how right that was.
    """

    name = "ngram"
    scratch_len = 0
    is_calibrated = True
    tapped_layers: tuple[int, ...] = ()
    kv_layers: tuple[LayerShape, ...] = ()

    def __init__(self, settings: NgramSettings | None = None) -> None:
        self._settings = settings or NgramSettings()
        self._texts: WeakKeyDictionary[PageTable, NgramText] = WeakKeyDictionary()
        self._odds = RepeatOdds()

    @property
    def draft_len(self) -> int:
        """The deepest draft there can be."""
        return self._settings.draft_len

    def absorb(self, rows: Rows, taps: Tensor | None, pool: PagePool) -> None:
        """Nothing: the tokens themselves are all that is looked at."""

    def draft(
        self, requests: Sequence[DraftRequest], pool: PagePool, attention: AttentionBackend, *, top_k: int
    ) -> tuple[Marginals, ...]:
        """As `Drafter.draft`: one token a depth, or nothing. The tokens are a function of the request's alone; how
        likely they are held depends on what came of drafts before, its own and others'."""
        return tuple(map(self._lookup, requests))

    def _lookup(self, request: DraftRequest) -> Marginals:
        text = self._texts.get(request.page_table)
        if text is None:
            text = NgramText(self._settings.min_ngram_len, RepeatOdds(self._odds))
            self._texts[request.page_table] = text
        token_ids, settings = request.token_ids, self._settings
        text.take_in(token_ids)
        follower = text.latest_follower(token_ids, settings.max_ngram_len)
        draft_len = min(settings.draft_len, request.max_draft_len)
        if follower is None or draft_len < 1:
            return NOTHING
        drafted = list(token_ids[follower : follower + draft_len])
        for place in range(draft_len - len(drafted)):
            drafted.append(drafted[place])  # a text that repeats itself right up to its end goes on repeating
        matched_len = common_end_len(token_ids, follower, MAX_MATCHED_LEN)
        text.said = Said(len(token_ids), matched_len, drafted)
        log_probs = np.array(text.odds.log_probs(matched_len, draft_len), dtype=np.float32)
        return Marginals(log_probs[:, None], np.array(drafted, dtype=np.int64)[:, None])


@dataclass(frozen=True, slots=True)
class Said:
    """A draft, until what came after it is known."""

    num_tokens: int
    """Of the text, when it was drafted."""
    matched_len: int
    token_ids: list[int]

    def are_right(self, token_ids: Sequence[int]) -> Iterator[bool]:
        """Of each draft whether it came, up to the first that didn't; none of those that are not known yet."""
        for drafted, came in zip(self.token_ids, token_ids[self.num_tokens :], strict=False):
            yield drafted == came
            if drafted != came:
                return


class NgramText:
    """One request's text, which grows, and where the n-grams at its end stand in it.

    Most drafts are found in the output and the end of the prompt: their n-grams are in a dictionary. What comes
    before is searched when it is asked for, an array at a time: putting 185,000 tokens into a dictionary takes as
    long as some hundred searches.
    """

    def __init__(self, ngram_len: int, odds: RepeatOdds) -> None:
        self.said: Said | None = None
        self.odds = odds
        self._ngram_len = ngram_len
        self._start: TokenIds | None = None
        """The first tokens; None: nothing came in yet."""
        self._first_place = 0
        """The first that n-grams were taken in behind."""
        self._latest: dict[tuple[int, ...], int] = {}
        """By n-gram, the latest place behind it; of those behind the first tokens alone."""
        self._earlier: list[int] = []
        """By such a place, counted from the first of them: the place behind the same n-gram before it."""

    def take_in(self, token_ids: Sequence[int]) -> None:
        """All tokens, of which those before are known already; the last one is followed by nothing yet."""
        if self.said is not None:
            self.odds.observe(self.said.matched_len, self.said.are_right(token_ids))
            self.said = None
        if self._start is None:
            self._start = np.array(token_ids[: max(0, len(token_ids) - INDEXED_LEN)], dtype=np.int32)
            self._first_place = max(len(self._start) + 1, self._ngram_len)
        latest, earlier, length = self._latest, self._earlier, self._ngram_len
        first = self._first_place + len(earlier)
        if first >= len(token_ids):
            return
        columns = [token_ids[first - length + n : len(token_ids) - length + n] for n in range(length)]
        for place, ngram in enumerate(zip(*columns, strict=True), start=first):
            earlier.append(latest.get(ngram, _NOWHERE))
            latest[ngram] = place

    def latest_follower(self, token_ids: Sequence[int], max_len: int) -> int | None:
        """Where the text goes on after an earlier occurrence of its own end: of the longest end, up to `max_len`
        tokens, that occurs earlier, the latest occurrence (the two may overlap). None where there is none of an
        n-gram's length. Of the dictionary's, `MAX_PLACES` are looked at."""
        assert self._start is not None, "a text that nothing was taken in of"
        longest, found = self._latest_match(token_ids, max_len)
        if longest < max_len and len(self._start):
            matched_len, place = _latest_match(self._start, token_ids[-max_len:], max(self._ngram_len, longest + 1))
            if matched_len > longest:
                return place
        return found

    def _latest_match(self, token_ids: Sequence[int], max_len: int) -> tuple[int, int | None]:
        place = self._latest.get(tuple(token_ids[-self._ngram_len :]), _NOWHERE)
        longest, found = 0, None
        for _ in range(MAX_PLACES):
            if place == _NOWHERE:
                break
            matched_len = common_end_len(token_ids, place, max_len)
            if matched_len > longest:
                longest, found = matched_len, place
                if matched_len == max_len:
                    break
            place = self._earlier[place - self._first_place]
        return longest, found


def _latest_match(text: TokenIds, end: Sequence[int], min_len: int) -> tuple[int, int]:
    """How many last tokens of `end`, `min_len` or more, stand in the text, and behind the latest place where so many
    do; (0, 0): nowhere.

    Measured on one core over 185,000 tokens, of code and of the worst patterns: 0.1 to 0.5 ms.
    """
    longest, found = min_len - 1, 0
    for stop in range(len(text), 0, -_BLOCK_LEN):
        matched_len, place = _longest_match(text, max(0, stop - _BLOCK_LEN), stop, end)
        if matched_len > longest:
            longest, found = matched_len, place
        if longest == len(end):
            break
    return (longest, found) if found else (0, 0)


def _longest_match(text: TokenIds, start: int, stop: int, end: Sequence[int]) -> tuple[int, int]:
    """How many last tokens of `end` stand in the text with the last one within start .. stop - 1, and behind the
    latest place where so many do; (0, 0) where not even the last one does."""
    places = (text[start:stop] == end[-1]).nonzero()[0]
    places += start + 1
    matched_len, place = 0, 0
    while len(places):
        matched_len, place = matched_len + 1, int(places[-1])
        if matched_len == len(end):
            break
        places = places[places > matched_len]
        places = places[text[places - (matched_len + 1)] == end[-(matched_len + 1)]]
    return matched_len, place


def common_end_len(token_ids: Sequence[int], place: int, most: int) -> int:
    """How many last tokens of all are those before the place, up to `most`."""
    num_tokens, common_len = len(token_ids), 0
    most = min(most, place)
    while common_len < most and token_ids[place - 1 - common_len] == token_ids[num_tokens - 1 - common_len]:
        common_len += 1
    return common_len
