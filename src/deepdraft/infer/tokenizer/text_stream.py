"""Tokens to text, one at a time, in whole characters.

Byte-level vocabularies go through an incremental UTF-8 decoder. Others (SentencePiece forms with their spaces and
byte fallback) are decoded over a small window, since there a token's text depends on its neighbours; a run of
fallback bytes that turns invalid after a whole character keeps that character, where decoding all at once loses it.
"""

from __future__ import annotations

import codecs
from typing import Protocol

from deepdraft.infer.tokenizer.tokenizer import Tokenizer

_REPLACEMENT = "\ufffd"
_MAX_UNFINISHED_TOKENS = 8
"""A character has at most four bytes: a window that still ends in U+FFFD after this many tokens holds garbage."""


class TextStream(Protocol):
    """The text of tokens that come one by one."""

    def push(self, token_id: int) -> str:
        """The characters that are complete now."""

    def finish(self) -> str:
        """What was left of an unfinished character, as U+FFFD."""


def text_stream(tokenizer: Tokenizer, *, skip_special: bool) -> TextStream:
    """The stream that fits the vocabulary."""
    if tokenizer.is_byte_level:
        return _ByteStream(tokenizer, skip_special)
    return _WindowStream(tokenizer, skip_special)


class _ByteStream:
    def __init__(self, tokenizer: Tokenizer, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_id: int) -> str:
        if self._skip_special and self._tokenizer.is_special(token_id):
            return ""
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    def finish(self) -> str:
        return self._decoder.decode(b"", final=True)


class _WindowStream:
    """Decodes the last handed-out tokens together with the new ones; what the new ones add is the text."""

    def __init__(self, tokenizer: Tokenizer, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._window: list[int] = []
        self._num_given = 0
        """Tokens at the window's start whose text has been handed out."""
        self._given = ""

    def push(self, token_id: int) -> str:
        if self._skip_special and self._tokenizer.is_special(token_id):
            return ""
        self._window.append(token_id)
        text = self._tokenizer.decode(self._window, skip_special=self._skip_special)
        num_new = len(self._window) - self._num_given
        if text.endswith(_REPLACEMENT) and num_new < _MAX_UNFINISHED_TOKENS:
            return ""
        return self._hand_out(text)

    def finish(self) -> str:
        return self._hand_out(self._tokenizer.decode(self._window, skip_special=self._skip_special))

    def _hand_out(self, text: str) -> str:
        piece = text[len(self._given) :]
        self._window = self._window[self._num_given :]
        self._num_given = len(self._window)
        self._given = self._tokenizer.decode(self._window, skip_special=self._skip_special)
        return piece
