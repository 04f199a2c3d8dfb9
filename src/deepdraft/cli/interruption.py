"""Ctrl-C, SIGTERM and a lost terminal: the first ends what is running in order, later ones change nothing.

Python's own answer to a second Ctrl-C is an exception wherever the program happens to be, which would cost the last
lines of the file or the table. Everything after the first is bounded work, so there is nothing to hurry.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Coroutine, Iterator
from types import FrameType
from typing import Any, TypeVar

T = TypeVar("T")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Cancels the task that `run` runs. Before there is one, a signal raises KeyboardInterrupt."""

    def __init__(self) -> None:
        self.is_asked = False
        self._cancel: tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]] | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine to its end; a signal cancels it, and it may answer that by returning in order."""

        async def watched() -> T:
            task = asyncio.current_task()
            assert task is not None
            self._cancel = asyncio.get_running_loop(), task
            return await work

        try:
            return asyncio.run(watched())
        finally:
            self._cancel = None

    def ask(self, number: int, frame: FrameType | None) -> None:
        """What a signal does."""
        if self.is_asked:
            return
        if self._cancel is None:
            raise KeyboardInterrupt
        self.is_asked = True
        loop, task = self._cancel
        loop.call_soon_threadsafe(task.cancel)


@contextlib.contextmanager
def interruption() -> Iterator[Interruption]:
    """Take over the signals for the block; those that the shell had ignored (`nohup`, `&`) stay ignored."""
    found = Interruption()
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    taken = [number for number in _SIGNALS if before[number] is not signal.SIG_IGN]
    for number in taken:
        signal.signal(number, found.ask)
    try:
        yield found
    finally:
        for number in taken:
            signal.signal(number, before[number])
