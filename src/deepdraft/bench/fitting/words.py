"""Fits a prompt from words that are known to cost one token each: its cost is a sum, so no prompt is ever probed.

For servers that count only by prefilling, and for sources that can choose their words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random

from deepdraft.bench.fitting.frame import Ask, Count, Fit, Frame, check_room, num_chars, with_fact
from deepdraft.bench.lexicon import Lexicon
from deepdraft.bench.text import TextSource


class FixedLens:
    """What frames and facts cost, each measured once."""

    def __init__(self, count: Count, next_head: Callable[[], str]) -> None:
        self._count = count
        self._next_head = next_head
        self._known: dict[tuple[Frame, str | None], int] = {}

    async def of(self, frame: Frame, fact: str | None) -> int:
        """Tokens of a prompt with this frame and fact and nothing else."""
        key = (frame, fact)
        if key not in self._known:
            self._known[key] = await self._count(self._next_head() + frame.rest(fact or ""))
        return self._known[key]


class WordFitter:
    """Adds up words."""

    method = "sum of words known to cost one token"

    def __init__(
        self, source: TextSource, lexicon: Lexicon, fixed_lens: FixedLens, next_head: Callable[[], str]
    ) -> None:
        self._source = source
        self._lexicon = lexicon
        self._fixed_lens = fixed_lens
        self._next_head = next_head

    @staticmethod
    def is_possible(source: TextSource, lexicon: Lexicon) -> bool:
        """Whether the words known are enough for this source."""
        return (
            source.pieces_of_words is not None
            and bool(lexicon.filler_words)
            and source.pieces_of_words(0, lexicon.words) is not None
        )

    async def fixed_len(self, frame: Frame, fact: str | None) -> int:
        """Tokens of a prompt without body and filler."""
        return await self._fixed_lens.of(frame, fact)

    async def same_body(self, fit: Fit, frame: Frame) -> Fit:
        """The same prompt with another head: all heads cost the same."""
        return replace(fit, head=self._next_head())

    async def fit(self, ask: Ask) -> Fit:
        """Make the prompt."""
        room_len = check_room(ask, await self.fixed_len(ask.frame, ask.fact))
        body: list[str] = []
        for piece in self._pieces(ask.seed):
            piece_len = self._lexicon.num_tokens(piece)
            if piece_len > room_len:
                break
            body.append(piece)
            room_len -= piece_len
        filler = Random(ask.seed).choices(self._lexicon.filler_words, k=room_len)
        rest = ask.frame.rest(with_fact(body, ask.fact, ask.depth_frac), filler)
        return Fit(self._next_head(), rest, None, num_chars(body), ask.total_len, is_exact=True)

    def _pieces(self, seed: int) -> Iterator[str]:
        choose = self._source.pieces_of_words
        pieces = choose(seed, self._lexicon.words) if choose else None
        if pieces is None:
            raise ValueError(f"the source {self._source.kind!r} can't be written in the words known")
        return (self._lexicon.plain(piece) for piece in pieces)
