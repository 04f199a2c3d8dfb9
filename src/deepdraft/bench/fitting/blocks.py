"""Fits a prompt from blocks of text that were measured once and are used again in ever new orders.

For servers that count only by prefilling, and for texts whose words can't be chosen. Measuring a block of 2,048
tokens costs a short prefill, so all blocks of a long prompt together cost far less than one prefill of it, and the
next prompt of that length costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random

from deepdraft.bench.fitting.frame import Ask, Count, Fit, Frame, check_room, num_chars, with_fact
from deepdraft.bench.fitting.words import FixedLens
from deepdraft.bench.text import TextSource

_SIZES = (2_048, 256, 64, 16)
"""Tokens of a block, about."""
_ROOM_FACTOR = 1.4
"""A block is taken while there is room for one somewhat longer than its size."""
_FIRST_CHARS_PER_TOKEN = 3.5
_FEWEST_BLOCKS = 4
"""A prompt has at least so many blocks, so that another order of them is another text."""
_LONGEST_FACTOR = 2.0
_MAX_SKIPPED = 50


@dataclass(frozen=True, slots=True)
class Block:
    """Text that stands between two clean cuts, and what it costs there."""

    pieces: tuple[str, ...]
    num_tokens: int


class BlockBank:
    """The blocks measured so far, by size; it grows when a prompt needs more."""

    def __init__(
        self,
        count: Count,
        source: TextSource,
        frame: Frame,
        fixed_lens: FixedLens,
        next_head: Callable[[], str],
        seed: int,
        max_probe_len: int,
    ) -> None:
        """`max_probe_len`: no probe is to be longer, in tokens, than about this."""
        self.sizes = tuple(size for size in _SIZES if 2 * size <= max_probe_len) or _SIZES[-1:]
        self.blocks: dict[int, list[Block]] = {size: [] for size in self.sizes}
        self.is_clean_cut = source.is_clean_cut
        self._count = count
        self._source = source
        self._frame = frame
        self._fixed_lens = fixed_lens
        self._next_head = next_head
        self._pieces = source.pieces(seed)
        self._before = "the piece before the first"
        self._ahead = next(self._pieces)
        self._num_chars = 0
        self._chars_per_token = _FIRST_CHARS_PER_TOKEN

    @property
    def is_whole_text(self) -> bool:
        """The source has begun to repeat itself: more blocks would bring nothing new."""
        repeats_after_chars = self._source.repeats_after_chars
        return repeats_after_chars is not None and self._num_chars >= repeats_after_chars

    async def measured_len(self, text: str) -> int:
        """Tokens of a text that stands between two clean cuts."""
        total_len = await self._count(self._next_head() + self._frame.rest(text))
        return total_len - await self._fixed_lens.of(self._frame, None)

    async def grow(self, size: int) -> Block:
        """Measure one more block of about `size` tokens."""
        pieces = self._next_pieces(size * self._chars_per_token)
        block = Block(tuple(pieces), await self.measured_len("".join(pieces)))
        self.blocks[size].append(block)
        self._num_chars += num_chars(pieces)
        if size >= _SIZES[1] and block.num_tokens > 0:
            self._chars_per_token = num_chars(pieces) / block.num_tokens
        return block

    async def adds_up(self) -> bool:
        """Whether two blocks together cost what they cost apart."""
        size = self.sizes[min(1, len(self.sizes) - 1)]
        one, other = await self.grow(size), await self.grow(size)
        both = "".join((*one.pieces, *other.pieces))
        return await self.measured_len(both) == one.num_tokens + other.num_tokens

    def _next_pieces(self, at_least_chars: float) -> list[str]:
        """The next pieces of the source, from a clean cut to a clean cut if there is one within reach."""
        for _ in range(_MAX_SKIPPED):
            if self._is_at_cut():
                break
            self._advance()
        taken = [self._advance()]
        while num_chars(taken) < at_least_chars or (
            not self._is_at_cut() and num_chars(taken) < _LONGEST_FACTOR * at_least_chars
        ):
            taken.append(self._advance())
        return taken

    def _is_at_cut(self) -> bool:
        return self._source.is_clean_cut(self._before, self._ahead)

    def _advance(self) -> str:
        self._before, self._ahead = self._ahead, next(self._pieces)
        return self._before


class BlockFitter:
    """Adds up blocks."""

    method = "sum of measured blocks"

    def __init__(
        self,
        bank: BlockBank,
        fixed_lens: FixedLens,
        filler_words: Sequence[str],
        next_head: Callable[[], str],
    ) -> None:
        """`filler_words` cost one token each."""
        self._bank = bank
        self._fixed_lens = fixed_lens
        self._filler_words = tuple(filler_words)
        self._next_head = next_head

    async def fixed_len(self, frame: Frame, fact: str | None) -> int:
        """Tokens of a prompt without body and filler."""
        return await self._fixed_lens.of(frame, fact)

    async def same_body(self, fit: Fit, frame: Frame) -> Fit:
        """The same prompt with another head: all heads cost the same."""
        return replace(fit, head=self._next_head())

    async def fit(self, ask: Ask) -> Fit:
        """Make the prompt."""
        room_len = check_room(ask, await self.fixed_len(ask.frame, ask.fact))
        rng = Random(ask.seed)
        blocks: list[Block] = []
        largest_size = max(room_len // _FEWEST_BLOCKS, self._bank.sizes[-1])
        for size in self._bank.sizes:
            if size <= largest_size:
                chosen = await self._chosen(size, room_len, rng)
                blocks += chosen
                room_len -= sum(block.num_tokens for block in chosen)
        rng.shuffle(blocks)
        body = [piece for block in blocks for piece in block.pieces]
        filler = rng.choices(self._filler_words, k=room_len)
        rest = ask.frame.rest(with_fact(body, ask.fact, ask.depth_frac, self._bank.is_clean_cut), filler)
        return Fit(self._next_head(), rest, None, num_chars(body), ask.total_len, is_exact=True)

    async def _chosen(self, size: int, room_len: int, rng: Random) -> list[Block]:
        """Blocks of one size that fit into the room, in a new order; each once, unless the text repeats anyway."""
        chosen: list[Block] = []
        known = self._bank.blocks[size]
        unused = rng.sample(known, len(known))
        while room_len >= _ROOM_FACTOR * size:
            if not unused and known and self._bank.is_whole_text:
                unused = rng.sample(known, len(known))
            block = unused.pop() if unused else await self._bank.grow(size)
            if block.num_tokens <= room_len:
                chosen.append(block)
                room_len -= block.num_tokens
        return chosen
