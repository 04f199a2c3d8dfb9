"""Streamed text: tokens in, whole characters out, and the end at a stop string.

The pieces of all pushes and of `finish` put together are what `Tokenizer.decode` gives for the same tokens, up to the
stop string that is completed first. How tokens become text is `text_stream`'s, stop strings are `stop_string`'s.
"""

from __future__ import annotations

from deepdraft.infer.tokenizer.stop_string import StopFinder
from deepdraft.infer.tokenizer.text_stream import text_stream
from deepdraft.infer.tokenizer.tokenizer import Tokenizer


class Detokenizer:
    """The text of one request's output. The work of a push depends on the token's length alone."""

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...] = (), *, skip_special: bool = True) -> None:
        """`stop` strings must not be empty. `skip_special`: special tokens give no text."""
        self._stream = text_stream(tokenizer, skip_special=skip_special)
        self._finder = StopFinder(stop)

    @property
    def stopped(self) -> bool:
        """A stop string was found; all text before it has been handed out, and nothing more will be."""
        return self._finder.found is not None

    @property
    def stop_string(self) -> str | None:
        """The stop string that was found."""
        return self._finder.found

    def push(self, token_id: int, *, can_stop: bool = True) -> str:
        """The text that is certain now. An unfinished character and a possible beginning of a stop string wait.

        With can_stop off (before min_tokens) nothing is held back, and a stop string has to begin afterwards.
        """
        return self._finder.push(self._stream.push(token_id), can_stop=can_stop)

    def finish(self) -> str:
        """The rest: what waited, an unfinished character as U+FFFD. Nothing once stopped."""
        return self._finder.push(self._stream.finish()) + self._finder.finish()
