"""Who counts tokens: the server's tokenize endpoint, a tokenizer on this machine, or the server's own usage.

Counting only. What a count is good for, and whether two counters agree, is `prompt`'s business. The server is reached
through functions that the caller hands in, so nothing here knows an engine or a route.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from deepdraft.errors import UsageError

# Above this a count takes long enough (about 10 ms) to be worth a thread: the event loop keeps its pace meanwhile.
_LONG_TEXT_CHARS = 32_000


class Counter(Protocol):
    """Counts the tokens of a text."""

    @property
    def source(self) -> str:
        """Who counts, in the words of the records."""

    @property
    def is_cheap(self) -> bool:
        """A count costs no prefill."""

    @property
    def includes_template(self) -> bool:
        """The count holds what the server adds to a text: chat template, BOS."""

    async def count(self, text: str) -> int:
        """Tokens of `text`."""


@dataclass(frozen=True, slots=True)
class EndpointCounter:
    """The server's tokenize endpoint."""

    num_tokens: Callable[[str], Awaitable[int]]
    """Text -> how many tokens the endpoint makes of it; what it raises passes through."""
    includes_template: bool = False
    source: str = "server tokenize endpoint"
    is_cheap: bool = True

    async def count(self, text: str) -> int:
        """Tokens of `text` as the endpoint counts them."""
        return await self.num_tokens(text)


@dataclass(slots=True)
class UsageCounter:
    """The server's usage: it is sent the text as a prompt, is asked for one token, and says how long the prompt was.

    Each count costs a prefill, so this one keeps the bill.
    """

    probe: Callable[[str], Awaitable[int]]
    """Sends the text on the route that will be measured, with max_tokens 1, and returns usage.prompt_tokens. Raises
    RequestFailed or ServerError, which pass through."""
    includes_template: bool = field(default=True, init=False)
    source: str = field(default="usage probes", init=False)
    is_cheap: bool = field(default=False, init=False)
    num_probes: int = field(default=0, init=False)
    num_probed_tokens: int = field(default=0, init=False)

    async def count(self, text: str) -> int:
        """Tokens of the whole prompt as the server counts them."""
        self.num_probes += 1
        num_tokens = await self.probe(text)
        self.num_probed_tokens += num_tokens
        return num_tokens


class LocalTokenizer:
    """A tokenizer on this machine, from a tokenizer.json; needs the optional package `tokenizers`.

    It counts text without special tokens: what the server adds is learned from the server.
    """

    source = "local tokenizer"
    is_cheap = True
    includes_template = False

    def __init__(self, path: str | Path) -> None:
        """`path` is a tokenizer.json, or the folder that holds one (a model's).

        Raises UsageError when the file or the package is missing, or the file is no tokenizer. No other tokenizer
        takes its place: a wrong count is worse than none.
        """
        file = Path(path).expanduser()
        if file.is_dir():
            file /= "tokenizer.json"
        if not file.is_file():
            raise UsageError(
                f"no tokenizer at {file}",
                hint="--tokenizer takes a tokenizer.json, or a model's folder that holds one",
            )
        try:
            import tokenizers
        except ImportError as error:
            raise UsageError(
                "a local tokenizer needs the package `tokenizers`", hint="pip install 'deepdraft[tokenizer]'"
            ) from error
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # the package raises a bare Exception for a file it can't read
            raise UsageError(f"{file} is no tokenizer: {error}", hint="it must be a tokenizer.json") from error
        # A tokenizer.json may tell its users to cut or to pad; a count must do neither.
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    async def count(self, text: str) -> int:
        """Tokens of `text`, special tokens left out."""
        if len(text) < _LONG_TEXT_CHARS:
            return self._num_tokens(text)
        return await asyncio.to_thread(self._num_tokens, text)

    async def ids(self, text: str) -> Sequence[int]:
        """Token ids of `text`, special tokens left out."""
        encoding = await asyncio.to_thread(self._tokenizer.encode, text, add_special_tokens=False)
        ids: list[int] = encoding.ids
        return ids

    def _num_tokens(self, text: str) -> int:
        # encode_batch_fast leaves out the offsets, which takes half the time of encode on a megabyte.
        return len(self._tokenizer.encode_batch_fast([text], add_special_tokens=False)[0])


@dataclass(frozen=True, slots=True)
class IdRoute:
    """A server that turns text into token ids, and takes ids as a prompt."""

    tokenize: Callable[[str], Awaitable[Sequence[int]]]
    """Text -> ids, with or without BOS."""
    probe: Callable[[Sequence[int]], Awaitable[int]]
    """Sends ids on the route that will be measured, with max_tokens 1, and returns usage.prompt_tokens."""
