"""The tokenizer of the simulated server: deterministic, needs no files, and not one token a word.

A piece is a newline, a word of up to 8 letters or digits with one space before it, or any other single character.
Longer words become several pieces. Each piece has an id by a stable hash; two pieces may share one, as nothing here
depends on ids being distinct except the prefix cache, which would then see a hit that is not there (1 in 131,072 for
the first differing token).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence

VOCAB_LEN = 131_072
EOS_ID = 0
_PIECE = re.compile(r"\n| ?[^\W_]{1,8}|.", re.DOTALL)


class Tokenizer:
    """Text to pieces and ids. It remembers the pieces it has seen, so that ids can be turned back into text."""

    def __init__(self) -> None:
        self._id_of: dict[str, int] = {}
        self._piece_of: dict[int, str] = {}

    def pieces(self, text: str) -> list[str]:
        """Split text; joined again the pieces are the text."""
        return _PIECE.findall(text)

    def ids(self, pieces: Iterable[str]) -> list[int]:
        """The id of each piece, from 1 to VOCAB_LEN - 1."""
        id_of = self._id_of
        ids = []
        for piece in pieces:
            token_id = id_of.get(piece)
            if token_id is None:
                token_id = self._learn(piece)
            ids.append(token_id)
        return ids

    def encode(self, text: str) -> list[int]:
        """The ids of a text."""
        return self.ids(self.pieces(text))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids seen before; an id never seen reads as a space and its number."""
        piece_of = self._piece_of
        return "".join(piece_of.get(token_id) or f" {token_id}" for token_id in ids)

    def _learn(self, piece: str) -> int:
        token_id = 1 + zlib.crc32(piece.encode("utf-8", "surrogatepass")) % (VOCAB_LEN - 1)
        self._id_of[piece] = token_id
        self._piece_of.setdefault(token_id, piece)
        return token_id
