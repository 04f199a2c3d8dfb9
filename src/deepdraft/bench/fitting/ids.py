"""Fits a prompt of token ids: the text's ids, cut. Exact by construction, as no tokenizer comes after it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

from deepdraft.bench.fitting.frame import Ask, Fit, Frame, check_room, num_chars, take
from deepdraft.bench.text import TextSource

# What will be cut may be too long; what can't be cut approaches its length from below.
_AIM_ABOVE_FRAC = 1.02
_AIM_BELOW_FRAC = 0.8


class IdFitter:
    """Cuts ids."""

    method = "token ids cut to length"

    def __init__(
        self,
        tokenize: Callable[[str], Awaitable[Sequence[int]]],
        source: TextSource,
        overhead_len: int,
        chars_per_token: float,
        next_head: Callable[[], str],
    ) -> None:
        """`overhead_len`: tokens that the server adds to an id prompt. `chars_per_token` is a first estimate."""
        self._tokenize = tokenize
        self._source = source
        self._overhead_len = overhead_len
        self._chars_per_token = chars_per_token
        self._next_head = next_head
        self._specials: tuple[tuple[int, ...], int] | None = None  # ids before every text, number of ids after it

    async def fixed_len(self, frame: Frame, fact: str | None) -> int:
        """Tokens of a prompt without body and filler."""
        parts = (self._next_head() + frame.lead, fact or "", frame.tail_lead + frame.ending)
        specials, _ = await self._known_specials()
        return self._overhead_len + len(specials) + sum([len(await self.ids(part)) for part in parts])

    async def fit(self, ask: Ask) -> Fit:
        """Make the prompt."""
        head = self._next_head()
        specials, _ = await self._known_specials()
        head_ids = await self.ids(head + ask.frame.lead)
        fact_ids = await self.ids(ask.fact) if ask.fact else []
        ending_ids = await self.ids(ask.frame.tail_lead + ask.frame.ending)
        fixed_len = self._overhead_len + len(specials) + len(head_ids) + len(fact_ids) + len(ending_ids)
        room_len = check_room(ask, fixed_len)
        pieces = self._source.pieces(ask.seed)
        # The fact stands between two pieces, so what goes before it is taken apart from what comes after.
        before_ids, before_chars = await self._body(pieces, round(ask.depth_frac * room_len), _AIM_BELOW_FRAC)
        before_ids = before_ids[:room_len]
        after_ids, after_chars = await self._body(pieces, room_len - len(before_ids), _AIM_ABOVE_FRAC)
        after_ids = after_ids[: room_len - len(before_ids)]
        body_chars = before_chars + after_chars
        ids = (*specials, *head_ids, *before_ids, *fact_ids, *after_ids, *ending_ids)
        return Fit(head, None, ids, body_chars, self._overhead_len + len(ids), is_exact=True)

    async def same_body(self, fit: Fit, frame: Frame) -> Fit:
        """The same ids after another head's; where the heads differ in length, so do the prompts."""
        specials, _ = await self._known_specials()
        old_ids = await self.ids(fit.head + frame.lead)
        head = self._next_head()
        new_ids = await self.ids(head + frame.lead)
        ids = (*specials, *new_ids, *(fit.ids or ())[len(specials) + len(old_ids) :])
        return replace(fit, head=head, ids=ids, total_len=self._overhead_len + len(ids))

    async def num_specials(self) -> int:
        """Ids that the tokenizer puts before every text (BOS)."""
        return len((await self._known_specials())[0])

    async def ids(self, text: str) -> list[int]:
        """Ids of a text without what the tokenizer puts around every text."""
        if not text:
            return []
        before, num_after = await self._known_specials()
        ids = list(await self._tokenize(text))
        return ids[len(before) : len(ids) - num_after]

    async def _body(self, pieces: Iterator[str], at_least_len: int, aim_frac: float) -> tuple[list[int], int]:
        """The ids of whole pieces, as many as asked for or more, and their characters."""
        ids: list[int] = []
        body_chars = 0
        chars_per_token = self._chars_per_token
        while len(ids) < at_least_len:
            chunk = take(pieces, aim_frac * (at_least_len - len(ids)) * chars_per_token)
            chunk_ids = await self.ids("".join(chunk))
            ids += chunk_ids
            body_chars += num_chars(chunk)
            chars_per_token = num_chars(chunk) / max(len(chunk_ids), 1)
        return ids, body_chars

    async def _known_specials(self) -> tuple[tuple[int, ...], int]:
        """The ids that begin every text (BOS), and how many end it: learned from two texts that share nothing."""
        if self._specials is None:
            one, other = list(await self._tokenize("bridge")), list(await self._tokenize("window"))
            num_before = _num_common(one, other)
            num_after = _num_common(one[num_before:][::-1], other[num_before:][::-1])
            self._specials = (tuple(one[:num_before]), num_after)
        return self._specials


def _num_common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many ids the two share from their beginning on."""
    for index, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return index
    return min(len(one), len(other))
