"""Fits a prompt by sending it, looking at the count, and correcting: for counts that don't add up.

A count may go by characters, or by something nobody knows. A prompt up to a limit is tried a few times; a longer one
is estimated from all counts seen, and is as good as the last measurement of its length made it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from deepdraft.bench.fitting.frame import Ask, Count, Cut, Fit, Frame, check_room, cut_to_count, take
from deepdraft.bench.fitting.words import FixedLens
from deepdraft.bench.text import TextSource

_MAX_TRIES = 4
_FIRST_CHARS_PER_TOKEN = 4.0
_SPARE_FACTOR = 1.6
_SPARE_CHARS = 4_000
_SAMPLE_CHARS = 2_000


class ClosedLoopFitter:
    """Tries and corrects."""

    method = "tried and corrected"

    def __init__(
        self,
        count: Count,
        source: TextSource,
        fixed_lens: FixedLens,
        next_head: Callable[[], str],
        max_probe_len: int,
    ) -> None:
        """`next_head` gives heads of the same number of characters. Prompts above `max_probe_len` tokens are not
        tried."""
        self._count = count
        self._source = source
        self._fixed_lens = fixed_lens
        self._next_head = next_head
        self._max_probe_len = max_probe_len
        self._seen: dict[int, int] = {}  # tokens of a body -> its characters

    async def fixed_len(self, frame: Frame, fact: str | None) -> int:
        """Tokens of a prompt without body."""
        return await self._fixed_lens.of(frame, fact)

    async def observe(self, ask_frame: Frame, fact: str | None, num_body_chars: int, total_len: int) -> None:
        """Take in a count of a prompt that was sent."""
        self._see(num_body_chars, total_len - await self.fixed_len(ask_frame, fact))

    async def same_body(self, fit: Fit, frame: Frame) -> Fit:
        """The same prompt with another head: all heads cost the same."""
        return replace(fit, head=self._next_head())

    async def fit(self, ask: Ask) -> Fit:
        """Make the prompt."""
        fixed_len = await self.fixed_len(ask.frame, ask.fact)
        room_len = check_room(ask, fixed_len)
        if not self._seen:
            await self._look_at_sample(ask, fixed_len)
        start_chars = self._estimated_chars(room_len)
        pieces = take(self._source.pieces(ask.seed), _SPARE_FACTOR * start_chars + _SPARE_CHARS)
        cut = Cut(pieces, ask.fact, ask.depth_frac * start_chars)

        async def count_at(length_chars: int) -> int:
            total_len = await self._count(self._next_head() + ask.frame.rest(cut.body(length_chars)))
            self._see(length_chars, total_len - fixed_len)
            return total_len

        if ask.total_len > self._max_probe_len:
            rest = ask.frame.rest(cut.body(start_chars))
            return Fit(self._next_head(), rest, None, start_chars, ask.total_len, is_exact=False)
        length_chars, total_len = await cut_to_count(
            count_at,
            want_len=ask.total_len,
            start_chars=start_chars,
            max_chars=cut.max_chars,
            chars_per_token=self._slope(),
            max_counts=_MAX_TRIES,
        )
        rest = ask.frame.rest(cut.body(length_chars))
        return Fit(self._next_head(), rest, None, length_chars, total_len, is_exact=True)

    async def _look_at_sample(self, ask: Ask, fixed_len: int) -> None:
        """One short probe, so that the first estimate is no guess."""
        cut = Cut(take(self._source.pieces(ask.seed + 1), _SAMPLE_CHARS), None, 0.0)
        total_len = await self._count(self._next_head() + ask.frame.rest(cut.body(_SAMPLE_CHARS)))
        self._see(_SAMPLE_CHARS, total_len - fixed_len)

    def _see(self, body_chars: int, body_len: int) -> None:
        if body_chars > 0 and body_len > 0:
            self._seen[body_len] = body_chars

    def _slope(self) -> float:
        """Characters a token, over the widest span seen."""
        if not self._seen:
            return _FIRST_CHARS_PER_TOKEN
        longest, shortest = max(self._seen), min(self._seen)
        if longest < 2 * shortest:
            return self._seen[longest] / longest
        return (self._seen[longest] - self._seen[shortest]) / (longest - shortest)

    def _estimated_chars(self, body_len: int) -> int:
        """Characters of a body of so many tokens, from the nearest count seen."""
        if not self._seen:
            return round(body_len * _FIRST_CHARS_PER_TOKEN)
        nearest = min(self._seen, key=lambda seen_len: abs(seen_len - body_len))
        return max(0, round(self._seen[nearest] + (body_len - nearest) * self._slope()))
