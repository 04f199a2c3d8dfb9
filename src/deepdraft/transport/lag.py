"""How late the client's own event loop runs: a stamp taken late must not be taken for a slow server.

A callback is due every 10 ms; how much later it runs is how much later a socket would have been read. Costs
about 0.1 % of a core. Says nothing about a machine that stops altogether in between reads of its clock, nor
about time the kernel took to deliver bytes.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from bisect import bisect_left
from dataclasses import dataclass
from types import TracebackType
from typing import Self

_INTERVAL_S = 0.010
# asyncio rounds the wait of epoll up to whole milliseconds, so a timer may run this late on an idle loop.
# Only timers wait like that, reads don't: what lies within is not lag.
_TIMER_GRAIN_S = 0.001


@dataclass(frozen=True)
class LoopLag:
    """The loop's lateness over a window, in seconds."""

    window_s: float
    num_samples: int
    max_s: float | None
    """The longest time the loop was late; None when the probe did not run then."""
    p99_s: float | None
    """What 99 % of all moments of the window stayed within, moments that fell into a late stretch included."""
    late_s: float
    """Time during which the loop was late, summed."""
    cpu_s: float | None
    """CPU time of the whole process within the window, to a sample's interval; None with fewer than two."""


class LagProbe:
    """Samples the running loop from `async with` on until it is left; ask it for any window in between."""

    def __init__(self, interval_s: float = _INTERVAL_S) -> None:
        self._interval_s = interval_s
        self._handle: asyncio.TimerHandle | None = None
        self._due_at = 0.0
        # Arrays, not a list of objects: a sweep of an hour has 360,000 samples.
        self._at = array("d")
        self._late_s = array("d")
        self._cpu_s = array("d")

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._sample(time.monotonic(), 0.0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def lag(self, from_at: float, to_at: float) -> LoopLag:
        """The lateness between two moments, in seconds of time.monotonic.

        A late stretch that is still going on, because the caller itself keeps the loop busy, counts too.
        """
        window_s = max(0.0, to_at - from_at)
        has_ended_before = self._handle is None and (not self._at or from_at > self._at[-1])
        if has_ended_before or to_at < self._at[0]:
            return LoopLag(window_s, 0, None, None, 0.0, None)
        first, end = bisect_left(self._at, from_at), bisect_left(self._at, to_at)
        late = [self._within(index, from_at, to_at) for index in range(first, end)]
        if end < len(self._at):  # a stretch may reach out of the window
            late.append(self._within(end, from_at, to_at))
        elif self._handle is not None:  # or may still be going on
            late.append(_overlap_s(self._due_at + _TIMER_GRAIN_S, time.monotonic(), from_at, to_at))
        return LoopLag(
            window_s=window_s,
            num_samples=end - first,
            max_s=max(late, default=None),
            p99_s=_p99(late, self._interval_s),
            late_s=sum(late),
            cpu_s=self._cpu_s[end - 1] - self._cpu_s[first] if end - first >= 2 else None,
        )

    def _within(self, index: int, from_at: float, to_at: float) -> float:
        """A sample's lateness, as far as it lies in the window."""
        at = self._at[index]
        return _overlap_s(at - self._late_s[index], at, from_at, to_at)

    def _sample(self, at: float, late_s: float) -> None:
        self._at.append(at)
        self._late_s.append(late_s)
        self._cpu_s.append(time.process_time())
        # From now, not from the time due: after a long stop one sample tells all, and no burst follows.
        self._due_at = at + self._interval_s
        self._handle = self._loop.call_at(self._loop.time() + self._interval_s, self._tick)

    def _tick(self) -> None:
        at = time.monotonic()
        self._sample(at, max(0.0, at - self._due_at - _TIMER_GRAIN_S))


def _overlap_s(from_at: float, to_at: float, window_from_at: float, window_to_at: float) -> float:
    return max(0.0, min(to_at, window_to_at) - max(from_at, window_from_at))


def _p99(late_s: list[float], interval_s: float) -> float | None:
    """The 99th percentile over moments rather than samples.

    A stop of 1 s is one sample among the hundred that should have been taken in it; the ninety-nine missing
    ones would have been late by 0.99 s, 0.98 s and so on.
    """
    if not late_s:
        return None
    moments = list(late_s)
    for late in late_s:
        moments.extend(late - step * interval_s for step in range(1, int(late / interval_s) + 1))
    moments.sort()
    return moments[min(len(moments) - 1, int(len(moments) * 0.99))]
