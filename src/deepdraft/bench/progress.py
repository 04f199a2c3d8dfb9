"""What a person sees while a sweep runs: one line that is rewritten on a terminal, plain lines elsewhere.

Talk goes to standard error; standard output is for data. No thread: the sweep's own event loop calls `tick`, so that
drawing never competes with a stamp (a tick is a few microseconds, at most five a second).
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

from deepdraft.units import seconds_text

_TICK_S = 0.2
_PLAIN_TICK_S = 30.0


@dataclass
class Progress:
    """The progress of one sweep. `stream` None is silent."""

    num_trials: int
    stream: TextIO | None = field(default_factory=lambda: sys.stderr)
    num_done: int = 0
    _started_at: float = field(default_factory=time.monotonic)
    _last_tick_at: float = 0.0
    _doing: str = ""
    _doing_since: float = 0.0
    _remaining_s: float | None = None
    _width: int = 0

    @property
    def _is_terminal(self) -> bool:
        return self.stream is not None and self.stream.isatty()

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.stream is None:
            return
        self._clear()
        print(text, file=self.stream, flush=True)

    def begin(self, doing: str, remaining_s: float | None) -> None:
        """A new trial begins; remaining_s is the estimate for the rest of the sweep."""
        self._doing, self._doing_since, self._remaining_s = doing, time.monotonic(), remaining_s
        self._last_tick_at = time.monotonic() if not self._is_terminal else 0.0
        self.tick("waiting for the first token")

    def tick(self, state: str) -> None:
        """Show what is going on, when it is time to."""
        now = time.monotonic()
        if self.stream is None or now - self._last_tick_at < (_TICK_S if self._is_terminal else _PLAIN_TICK_S):
            return
        self._last_tick_at = now
        remaining = ""
        if self._remaining_s is not None:
            left_s = max(0.0, self._remaining_s - (now - self._doing_since))
            remaining = f", about {seconds_text(left_s)} left" if left_s >= 1 else ""
        text = (
            f"[{self.num_done}/{self.num_trials}] {self._doing}: {state}, {now - self._doing_since:.0f} s{remaining}"
        )
        if self._is_terminal:
            self._clear()
            self._width = len(text)
            self.stream.write(text)
            self.stream.flush()
        else:
            print(text, file=self.stream, flush=True)

    def done(self) -> None:
        """A trial ended."""
        self.num_done += 1

    def close(self) -> None:
        """Leave the terminal clean."""
        self._clear()

    def _clear(self) -> None:
        if self._is_terminal and self._width and self.stream is not None:
            self.stream.write("\r" + " " * self._width + "\r")
            self._width = 0


def remaining_s(pending: list[tuple[int, int]], seen: dict[tuple[int, int], list[float]]) -> float | None:
    """Estimate the seconds left. pending: (context length, concurrency) of the trials to come; seen: seconds that
    trials of a point took. A point not yet seen is scaled from the nearest one, with the square of the length beyond
    it (prefill attention) and in proportion below."""
    if not seen:
        return None
    total = 0.0
    for context_len, concurrency in pending:
        took = seen.get((context_len, concurrency))
        if took is None:
            near = min(seen, key=lambda point: abs(point[0] - context_len) + abs(point[1] - concurrency))
            ratio = context_len / max(near[0], 1)
            scale = (ratio**2 if ratio > 1 else ratio) * max(concurrency / near[1], 0.5)
            total += scale * sum(seen[near]) / len(seen[near])
        else:
            total += sum(took) / len(took)
    return total
