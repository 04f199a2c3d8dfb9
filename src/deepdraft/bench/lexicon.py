"""Learns what words cost by asking few questions: which ones are exactly one token, wherever they stand.

Words are weighed together: if 128 words cost 128 tokens, each of them costs one, since none costs less. A batch that
costs more is halved until the costly words are alone. A word that stayed in doubt is left out. Where the cost of a
text is no sum over its words nothing is learned, and that is an answer too.
"""

from __future__ import annotations

import string
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle

_SPACED_BATCH = 128
_LINE_BATCH = 64
_NUM_PUNCTUATED = 32
_NUM_TINY = 3
_ENOUGH_HEAD_WORDS = 64
_SHORTEST_TELLING = 3
"""Letters of a word that is one token because it is a word; a shorter one may be so by its length."""

# A word costs at least a token. Where these, shorter than four characters with their space, cost less, characters are
# counted, and the words that seem to cost one token only have the right length.
_SHORTEST_WORDS = "a to of in it is be as at so we he by or on do if me my up an go no us am"

# A letter is a token in every tokenizer, first letters of a text included, even where few words are.
_STARTING_LETTERS = tuple(string.ascii_lowercase)
_HEAD_LETTERS = tuple(string.ascii_uppercase)

Count = Callable[[str], Awaitable[int]]
"""Text -> its tokens, with whatever the counter always adds."""


@dataclass(frozen=True, slots=True)
class Lexicon:
    """What was learned about one counter."""

    overhead_len: int
    """Tokens that the counter adds to any text: chat template and BOS as far as it sees them."""
    words: frozenset[str]
    """Words that cost one token after a space."""
    head_words: tuple[str, ...]
    """Words (letters, where hardly any word will do) that cost one token after a space and at the start of a text or
    a line."""
    filler_words: tuple[str, ...]
    """Of the words that were offered for heads, those that cost one token after a space."""
    comma_len: int | None
    """Tokens of a comma after a word, 0 or 1; None: not the same after every word."""
    full_stop_len: int | None
    """Tokens of a full stop after a word, 0 or 1; None: not the same after every word."""

    def plain(self, sentence: str) -> str:
        """The sentence without the punctuation whose cost is not known."""
        if self.comma_len is None:
            sentence = sentence.replace(",", "")
        if self.full_stop_len is None:
            sentence = sentence.replace(".", "")
        return sentence

    def num_tokens(self, sentence: str) -> int:
        """Tokens of a `plain` sentence of known words, each with a space before it."""
        num_tokens = sentence.count(" ")
        if self.comma_len:
            num_tokens += sentence.count(",")
        if self.full_stop_len:
            num_tokens += sentence.count(".")
        return num_tokens


@dataclass(frozen=True, slots=True)
class Thoroughness:
    """How much may be asked."""

    max_counts: int
    smallest_batch: int
    """A batch with a costly word in it is halved down to this size, and then dropped."""
    max_excess_frac: float
    """A batch with more tokens too many than this share of its words is dropped at once."""


FREE = Thoroughness(max_counts=2_500, smallest_batch=1, max_excess_frac=10.0)
"""For counts that cost nothing."""
COSTLY = Thoroughness(max_counts=90, smallest_batch=8, max_excess_frac=0.2)
"""For counts that cost a prefill each: about 20 of them where words are common, never more than 92."""

# Letters are few and short, so it is worth finding the odd one.
_DOWN_TO_ONE = Thoroughness(max_counts=0, smallest_batch=1, max_excess_frac=0.5)


class _Scales:
    """Weighs batches of words. Each text begins with a starter of its own."""

    def __init__(self, count: Count, starters: Iterator[str], num_left: int) -> None:
        self._count = count
        self._starters = starters
        self.num_left = num_left
        self.overhead_len = 0
        self.counts_words = True

    async def settle(self) -> None:
        """Learn what comes on top of a text from a few that hold one starter. Where the starters don't all cost the
        same, letters take their place: of them it is certain that they cost one token."""
        one_letter = await self._total_of(_STARTING_LETTERS[0])
        totals = [await self.total("") for _ in range(_NUM_TINY)]
        if any(total != one_letter for total in totals):
            self._starters = cycle(_STARTING_LETTERS)
        self.overhead_len = min(one_letter, *totals) - 1

    async def total(self, rest: str) -> int:
        """Tokens of a text that begins with a fresh starter, overhead included."""
        return await self._total_of(f"{next(self._starters)}{rest}")

    async def _total_of(self, text: str) -> int:
        self.num_left -= 1
        return await self._count(text)

    async def spaced_excess(self, batch: Sequence[str]) -> int:
        """Tokens too many for one a word: 0 only if each word, and the starter, costs one."""
        text = "".join(f" {word}" for word in batch)
        excess = await self.total(text) - self.overhead_len - 1 - len(batch)
        self.counts_words = self.counts_words and excess >= 0
        return excess

    async def line_excess(self, batch: Sequence[str]) -> int:
        """The same with each word on a line of its own. A line end costs one token, or nothing where a tokenizer
        takes it for a space; with nothing, the words cost what they cost after a space."""
        text = "".join(f"\n{word}" for word in batch)
        extra = await self.total(text) - self.overhead_len - 1
        return 0 if extra == len(batch) else extra - 2 * len(batch)


async def learn(
    count: Count,
    words: Sequence[str],
    head_words: Sequence[str],
    thoroughness: Thoroughness,
    starters: Iterator[str],
) -> Lexicon:
    """Learn which of `words` and `head_words` cost one token, and what punctuation costs.

    Each text counted begins with a word from `starters`, which are not to be among the words.
    A lexicon without words means: this counter does not count word by word, or hardly any word is one token.
    """
    scales = _Scales(count, starters, thoroughness.max_counts)
    await scales.settle()
    # Short words first: they are the likelier ones, and a long word then spoils a batch of long words.
    spaced = sorted(dict.fromkeys((*_SHORTEST_WORDS.split(), *head_words, *words)), key=len)
    known = await _sifted(spaced, _SPACED_BATCH, scales, scales.spaced_excess, thoroughness)
    if not scales.counts_words or not any(len(word) >= _SHORTEST_TELLING for word in known):
        return Lexicon(scales.overhead_len, frozenset(), (), (), None, None)
    kept = frozenset(known)
    fillers = sorted((word for word in head_words if word in kept), key=len)
    heads = await _sifted(fillers, _LINE_BATCH, scales, scales.line_excess, thoroughness)
    if len(heads) < _ENOUGH_HEAD_WORDS:
        letters = await _sifted(_HEAD_LETTERS, _LINE_BATCH, scales, scales.spaced_excess, _DOWN_TO_ONE)
        heads += await _sifted(letters, _LINE_BATCH, scales, scales.line_excess, _DOWN_TO_ONE)
    return Lexicon(
        overhead_len=scales.overhead_len,
        words=kept,
        head_words=tuple(heads),
        filler_words=tuple(fillers),
        comma_len=await _mark_len(",", known, scales),
        full_stop_len=await _mark_len(".", known, scales),
    )


async def _sifted(
    words: Sequence[str],
    batch_size: int,
    scales: _Scales,
    excess_of: Callable[[Sequence[str]], Awaitable[int]],
    thoroughness: Thoroughness,
) -> list[str]:
    """The words that cost one token each, batch by batch."""
    found: list[str] = []
    for at in range(0, len(words), batch_size):
        found += await _sift(words[at : at + batch_size], scales, excess_of, thoroughness)
    return found


async def _sift(
    batch: Sequence[str],
    scales: _Scales,
    excess_of: Callable[[Sequence[str]], Awaitable[int]],
    thoroughness: Thoroughness,
    is_impure: bool = False,
) -> list[str]:
    """The words of the batch that cost one token each, as far as asking for them is worth it."""
    if not batch or scales.num_left < 1 or not scales.counts_words:
        return []
    if not is_impure:
        excess = await excess_of(batch)
        if excess == 0:
            return list(batch)
        if not scales.counts_words or excess > max(1, thoroughness.max_excess_frac * len(batch)):
            return []
    if len(batch) <= thoroughness.smallest_batch:
        return []
    half = len(batch) // 2
    left = await _sift(batch[:half], scales, excess_of, thoroughness)
    # With nothing wrong in the left half the fault is in the right one: no need to weigh it whole.
    right = await _sift(batch[half:], scales, excess_of, thoroughness, is_impure=len(left) == half)
    return left + right


async def _mark_len(mark: str, words: Sequence[str], scales: _Scales) -> int | None:
    """Tokens of a punctuation mark after a word, if it is the same after short words and long ones."""
    step = max(1, len(words) // _NUM_PUNCTUATED)
    chosen = words[::step][:_NUM_PUNCTUATED]
    if len(chosen) < _NUM_PUNCTUATED:
        return None
    excess = await scales.spaced_excess([f"{word}{mark}" for word in chosen])
    return {0: 0, len(chosen): 1}.get(excess)
