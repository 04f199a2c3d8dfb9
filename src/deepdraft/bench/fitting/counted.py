"""Fits a prompt with a counter that costs nothing: build nearly all of it, count the whole, correct by single words.

A megabyte takes a tokenizer a quarter of a second, so every part is counted about twice: once in its chunk, once in
the whole. It is for cheap counters only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random

from deepdraft.bench.fitting.frame import (
    Ask,
    Count,
    Cut,
    Fit,
    Frame,
    check_room,
    cut_to_count,
    num_chars,
    take,
    with_fact,
)
from deepdraft.bench.text import TextSource

# A chunk aims below what is left, so that it rarely turns out too long, and is counted again when it does. It is not
# longer than this, since how many characters a token takes is best known from the text just before.
_AIM_FRAC = 0.96
_LONGEST_CHUNK_LEN = 16_384
_MOST_FILLER_WANTED = 16
_MAX_MISFITS = 3
_MAX_CORRECTIONS = 4
_MAX_CUTS = 40
_MAX_HEADS_TRIED = 50
_HEAD_WINDOW_CHARS = 200
_SPARE_FRAC = 0.15
_SPARE_CHARS = 4_000


class CountedFitter:
    """Builds by counting."""

    method = "whole prompts counted"

    def __init__(
        self,
        count: Count,
        source: TextSource,
        filler_words: Sequence[str],
        chars_per_token: float,
        next_head: Callable[[], str],
    ) -> None:
        """`filler_words` cost one token each as far as is known; there may be none. `chars_per_token` is a first
        estimate for the source."""
        self._count = count
        self._source = source
        self._filler_words = tuple(filler_words)
        self._chars_per_token = chars_per_token
        self._next_head = next_head

    async def fixed_len(self, frame: Frame, fact: str | None) -> int:
        """Tokens of a prompt without body and filler."""
        return await self._count(self._next_head() + frame.rest(fact or ""))

    async def fit(self, ask: Ask) -> Fit:
        """Make the prompt; its count is that of the text returned, head included."""
        head = self._next_head()
        room_len = check_room(ask, await self._count(head + ask.frame.rest(ask.fact or "")))
        pieces = self._source.pieces(ask.seed)
        body, left_len = await self._body(head, ask.frame, pieces, room_len)
        fitted = await self._corrected(head, ask, body, left_len) if self._filler_words else None
        return fitted or await self._cut(head, ask, body, pieces)

    async def same_body(self, fit: Fit, frame: Frame) -> Fit:
        """The same prompt with another head. Heads are compared with the beginning of the body after them; where
        none of many costs the same, the new count is in the result."""
        rest = fit.rest or ""
        window = rest[:_HEAD_WINDOW_CHARS]
        old_len = await self._count(fit.head + window)
        head, difference_len = fit.head, 0
        for _ in range(_MAX_HEADS_TRIED):
            head = self._next_head()
            difference_len = await self._count(head + window) - old_len
            if not difference_len:
                break
        return replace(fit, head=head, total_len=fit.total_len + difference_len)

    async def _body(self, head: str, frame: Frame, pieces: Iterator[str], room_len: int) -> tuple[list[str], int]:
        """Pieces that nearly fill the room, and the tokens left over."""
        empty_len = await self._count(head + frame.rest(""))
        body: list[str] = []
        left_len = room_len
        chars_per_token = self._chars_per_token
        num_misfits = 0
        while left_len > _MOST_FILLER_WANTED and num_misfits < _MAX_MISFITS:
            chunk = take(pieces, min(_AIM_FRAC * left_len, _LONGEST_CHUNK_LEN) * chars_per_token)
            chunk_len = await self._count(head + frame.rest("".join(chunk))) - empty_len
            while chunk_len > left_len and len(chunk) > 1:
                chunk = chunk[: max(1, int(len(chunk) * _AIM_FRAC * left_len / chunk_len))]
                chunk_len = await self._count(head + frame.rest("".join(chunk))) - empty_len
            if chunk_len > left_len:
                num_misfits += 1  # one long piece: another may be shorter
                continue
            body += chunk
            left_len -= chunk_len
            chars_per_token = num_chars(chunk) / max(chunk_len, 1)
        return body, left_len

    async def _corrected(self, head: str, ask: Ask, body: list[str], left_len: int) -> Fit | None:
        """The body with as many filler words as make the count exact; None if none do."""
        body = list(body)
        num_filler = left_len
        for _ in range(_MAX_CORRECTIONS):
            while num_filler < 0:
                if not body:
                    return None
                num_filler += await self._piece_len(head, ask.frame, body.pop())
            filler = Random(ask.seed).choices(self._filler_words, k=num_filler)
            rest = ask.frame.rest(with_fact(body, ask.fact, ask.depth_frac), filler)
            total_len = await self._count(head + rest)
            if total_len == ask.total_len:
                return Fit(head, rest, None, num_chars(body), total_len, is_exact=True)
            num_filler += ask.total_len - total_len
        return None

    async def _piece_len(self, head: str, frame: Frame, piece: str) -> int:
        return await self._count(head + frame.rest(piece)) - await self._count(head + frame.rest(""))

    async def _cut(self, head: str, ask: Ask, body: list[str], pieces: Iterator[str]) -> Fit:
        """The body cut after the character that makes the count right: for counters that don't count words."""
        body_chars = num_chars(body)
        spare = take(pieces, _SPARE_CHARS + _SPARE_FRAC * body_chars)
        cut = Cut((*body, *spare), ask.fact, ask.depth_frac * body_chars)

        async def count_at(length_chars: int) -> int:
            return await self._count(head + ask.frame.rest(cut.body(length_chars)))

        length_chars, total_len = await cut_to_count(
            count_at,
            want_len=ask.total_len,
            start_chars=body_chars,
            max_chars=cut.max_chars,
            chars_per_token=self._chars_per_token,
            max_counts=_MAX_CUTS,
        )
        rest = ask.frame.rest(cut.body(length_chars))
        # The count is the text's own, so it is right even where it is not what was asked.
        return Fit(head, rest, None, length_chars, total_len, is_exact=True)
