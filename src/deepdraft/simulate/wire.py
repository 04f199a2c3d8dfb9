"""From events to bytes on one stream: framing of server-sent events, and what the confounds do to the bytes.

Line ends, `data:` without its space, several events a write, writes cut at random bytes. It stamps every write that
carries tokens into the request's truth. Which events there are and when is decided elsewhere.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from deepdraft.simulate.http import Reply, chunk
from deepdraft.simulate.spec import Confounds
from deepdraft.simulate.truth import RequestTruth, TokenKind, Write

_LINE_ENDS = {"lf": b"\n", "crlf": b"\r\n", "cr": b"\r"}
_SPLIT_GAP_S = 0.0002
"""Between the pieces of a write that is cut, so that they are received apart."""
_MAX_PIECES = 5


class Wire:
    """The byte side of one streamed answer."""

    def __init__(self, reply: Reply, confounds: Confounds, truth: RequestTruth, seed: str) -> None:
        self._reply = reply
        self._truth = truth
        self._random = random.Random(seed)
        self._coalesce = confounds.coalesce_events
        self._is_split = confounds.split_writes
        line_end = _LINE_ENDS[confounds.line_end]
        self._line_end = line_end
        self._prefix = b"data:" if confounds.no_data_space else b"data: "
        self._suffix = line_end * 2
        self._held: list[bytes] = []
        self._held_kinds: list[TokenKind] = []
        self._held_token_events = 0
        self._num_tokens = 0
        self._lock = asyncio.Lock()
        self.last_write_s = time.monotonic()

    async def event(self, content: object, *, kinds: Sequence[TokenKind] = (), num_tokens: int = 0) -> None:
        """Send an event; `num_tokens` generated tokens of these kinds are in it."""
        await self._put(self._prefix + msgspec.json.encode(content) + self._suffix, kinds, num_tokens)

    async def done(self) -> None:
        """Send [DONE]."""
        await self._put(self._prefix + b"[DONE]" + self._suffix, (), 0)

    async def comment(self, text: bytes) -> None:
        """Send a comment, at once, behind what is held."""
        async with self._lock:
            self._held.append(b": " + text + self._suffix)
            await self._write()

    async def flush(self) -> None:
        """Send what is held back."""
        async with self._lock:
            await self._write()

    async def _put(self, framed: bytes, kinds: Sequence[TokenKind], num_tokens: int) -> None:
        async with self._lock:
            self._held.append(framed)
            if num_tokens:
                self._num_tokens += num_tokens
                self._held_token_events += 1
                self._held_kinds += kinds
            if len(self._held) >= self._coalesce:
                await self._write()

    async def _write(self) -> None:
        if not self._held:
            return
        content = b"".join(self._held)
        if self._is_split:
            *pieces, last = self._pieces(content)
            for piece in pieces:
                self._reply.raw(piece)
                await asyncio.sleep(_SPLIT_GAP_S)
        else:
            last = chunk(content)
        self.last_write_s = time.monotonic()
        if self._held_token_events:
            kinds = tuple(dict.fromkeys(self._held_kinds))
            self._truth.writes.append(Write(self.last_write_s, self._num_tokens, kinds, self._held_token_events))
        self._reply.raw(last)
        self._held, self._held_kinds, self._held_token_events = [], [], 0

    def _pieces(self, content: bytes) -> list[bytes]:
        """The same bytes in several chunks, and these cut again without regard to chunk borders."""
        framed = b"".join(chunk(part) for part in self._cut(content))
        return self._cut(framed)

    def _cut(self, content: bytes) -> list[bytes]:
        num_cuts = min(self._random.randint(1, _MAX_PIECES - 1), len(content) - 1)
        cuts = sorted(self._random.sample(range(1, len(content)), num_cuts))
        # Prefer a cut inside a character of several bytes, where there is one.
        inside = [position for position in range(1, len(content)) if content[position] & 0xC0 == 0x80]
        if inside:
            cuts = sorted({*cuts, self._random.choice(inside)})
        borders = [0, *cuts, len(content)]
        return [content[start:end] for start, end in pairwise(borders)]
