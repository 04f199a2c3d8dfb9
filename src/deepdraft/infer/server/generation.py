"""One HTTP request on its way through the engine: what came for it, waiting to be sent. On the event loop alone.

A slow reader holds nothing up: outputs pile up here, at most max_tokens of them for each choice.
"""

from __future__ import annotations

import asyncio

from deepdraft.errors import DeepdraftError
from deepdraft.infer.request import Output


class Generation:
    """The engine requests of one HTTP request. `EngineWorker` fills it, an answer empties it."""

    def __init__(self, num_requests: int) -> None:
        self.num_places = num_requests
        """Places in the queue that it still holds: one for each request that has not ended."""
        self.open_ids: set[str] = set()
        """Requests that the engine may still work on."""
        self._num_awaited = num_requests
        self._outputs: list[Output] = []
        self._failure: DeepdraftError | None = None
        self._news = asyncio.Event()

    async def accepted(self) -> None:
        """Wait until the engine has taken every request. Raises what it refused one with."""
        while self._num_awaited and self._failure is None:
            await self._next_news()
        if self._failure is not None:
            raise self._failure

    async def outputs(self) -> list[Output]:
        """All outputs since the last call, at least one. Raises the failure that ended it, after what came before."""
        while not self._outputs and self._failure is None:
            await self._next_news()
        if not self._outputs and self._failure is not None:
            raise self._failure
        found, self._outputs = self._outputs, []
        return found

    def accept(self) -> None:
        """The engine took one request."""
        self._num_awaited -= 1
        self._news.set()

    def deliver(self, output: Output) -> None:
        """A step brought something."""
        self._outputs.append(output)
        self._news.set()

    def fail(self, failure: DeepdraftError) -> None:
        """Nothing more will come."""
        self._failure = self._failure or failure
        self._news.set()

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()
