"""Waking up on time: an event loop whose timers are good to a few tens of microseconds, without spinning.

The stock selector hands epoll its timeout in whole milliseconds, rounded up. This one waits in select(2), which takes
microseconds, until the epoll descriptor itself is readable; only then epoll is asked.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys
import time

_MAX_SELECT_FD = 1024

if sys.platform == "linux":

    class _FineSelector(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0 and self.fileno() < _MAX_SELECT_FD:
                select.select((self.fileno(),), (), (), timeout)
                timeout = 0
            return super().select(timeout)

    def precise_loop() -> asyncio.AbstractEventLoop:
        """A new event loop with fine timers."""
        return asyncio.SelectorEventLoop(_FineSelector())

else:  # kqueue has nanoseconds by itself

    def precise_loop() -> asyncio.AbstractEventLoop:
        """A new event loop with fine timers."""
        return asyncio.SelectorEventLoop()


async def sleep_until(due_s: float) -> None:
    """Return at time.monotonic() `due_s`, or at once when that is past (others still get their turn)."""
    await asyncio.sleep(max(0.0, due_s - time.monotonic()))
