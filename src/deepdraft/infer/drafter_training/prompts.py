"""Prompts cut from text: windows that end anywhere in a document, so that what follows begins anywhere as well.

Long prompts come in groups that end at many places of one long text: the engine then computes that text once. All are
pure functions of seed and number. Leaves out what is written after them: see `written`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from deepdraft.errors import UsageError
from deepdraft.infer.tokenizer.tokenizer import Tokenizer

MIN_PROMPT_LEN = 64
SHORT_SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)
"""Short prompts' lengths, as shares of the longest one."""
LONG_FACTORS = (2, 16)
"""Least and greatest length of a long prompt, as multiples of the longest short one."""
PROMPTS_PER_TEXT = 32
"""Long prompts cut from one long text."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """The tokens before some place of a text, and the text's own tokens behind it."""

    number: int
    token_ids: tuple[int, ...]
    continuation: tuple[int, ...]


def read_documents(paths: Iterable[Path], tokenizer: Tokenizer) -> list[list[int]]:
    """One document a file, as the target's tokens; a folder stands for the files in it and below it, by name.

    Raises UsageError for a file that can't be read or is no UTF-8, and where no file has `MIN_PROMPT_LEN` + 1 tokens.
    """
    files = [file for path in paths for file in _files(path)]
    documents = [tokenizer.encode(_text(file), add_special=True) for file in files]
    documents = [document for document in documents if len(document) > MIN_PROMPT_LEN]
    if not documents:
        raise UsageError(
            f"no text file has more than {MIN_PROMPT_LEN} tokens", hint="name longer or more files with --text"
        )
    return documents


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    return sorted(file for file in path.rglob("*") if file.is_file())


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(f"can't read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no UTF-8 text", hint="leave it out of --text") from None


class Prompts:
    """Draws prompts from documents, each document in proportion to its length."""

    def __init__(
        self, documents: Sequence[Sequence[int]], *, seed: int, max_short_len: int, max_long_len: int | None = None
    ) -> None:
        """max_short_len: tokens of the longest short prompt; max_long_len: of a long text, where that is less than
        the greatest multiple."""
        self._documents = documents
        self._bounds = list(accumulate(len(document) for document in documents))
        self._seed = seed
        self._max_short_len = max_short_len
        longest = LONG_FACTORS[1] * max_short_len
        self._text_len = longest if max_long_len is None else min(longest, max_long_len)

    def short(self, number: int, *, continuation_len: int) -> Prompt:
        """Prompt `number`; it begins with its document where that comes before the length asked for."""
        draw = random.Random(f"{self._seed} short {number}")
        asked_len = max(MIN_PROMPT_LEN, round(draw.choice(SHORT_SHARES) * self._max_short_len))
        document = self._drawn(draw)
        stop = draw.randrange(MIN_PROMPT_LEN, len(document))
        token_ids = document[max(0, stop - asked_len) : stop]
        return Prompt(number, tuple(token_ids), tuple(document[stop : stop + continuation_len]))

    def exact(self, number: int, num_tokens: int) -> Prompt:
        """A prompt of exactly `num_tokens`: whole documents stand before the window where it is too short. A shorter
        one of the same number is the end of a longer one."""
        draw = random.Random(f"{self._seed} exact {number}")
        document = self._drawn(draw)
        stop = draw.randrange(MIN_PROMPT_LEN, len(document))
        token_ids = list(document[max(0, stop - num_tokens) : stop])
        while len(token_ids) < num_tokens:
            token_ids = [*self._drawn(draw), *token_ids][-num_tokens:]
        return Prompt(number, tuple(token_ids), ())

    def long_text(self, text_number: int) -> tuple[int, ...]:
        """Whole documents one after another, cut at the greatest length."""
        draw = random.Random(f"{self._seed} long {text_number}")
        token_ids: list[int] = []
        while len(token_ids) < self._text_len:
            token_ids += self._drawn(draw)
        return tuple(token_ids[: self._text_len])

    def long(self, text_number: int, *, first_number: int, continuation_len: int) -> list[Prompt]:
        """The prompts of one long text, `first_number` and following, the longest one first; fewer than
        PROMPTS_PER_TEXT where the text is too short for them."""
        text = self.long_text(text_number)
        draw = random.Random(f"{self._seed} stops {text_number}")
        least = min(LONG_FACTORS[0] * self._max_short_len, len(text) // 2)
        places = range(least, len(text))
        stops = sorted(draw.sample(places, min(PROMPTS_PER_TEXT, len(places))), reverse=True)
        return [
            Prompt(first_number + index, text[:stop], text[stop : stop + continuation_len])
            for index, stop in enumerate(stops)
        ]

    def _drawn(self, draw: random.Random) -> Sequence[int]:
        (index,) = draw.choices(range(len(self._documents)), cum_weights=self._bounds)
        return self._documents[index]
