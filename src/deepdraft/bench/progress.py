"""What a person sees while a sweep runs: one line that is rewritten on a terminal, plain lines elsewhere.

Talk goes to standard error; standard output is for data. No thread: the sweep's own event loop calls `tick`, so that
drawing never competes with a stamp (a tick is a few microseconds, at most five a second).
"""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from deepdraft.units import seconds_text

_TICK_S = 0.2
_PLAIN_TICK_S = 30.0
_USUAL_EXPONENT = 1.25
"""Between the 1.0 of matrix products and the 2.0 of attention; published sweeps to 185k tokens lie near it."""


@dataclass
class Progress:
    """The progress of one sweep. `stream` None is silent; so is one that can no longer be written to."""

    num_trials: int
    stream: TextIO | None = field(default_factory=lambda: sys.stderr)
    plain_tick_s: float = _PLAIN_TICK_S
    """Seconds between two lines about the same trial where the stream is no terminal."""
    num_done: int = 0
    label: str = ""
    """Begins every line, where several sweeps speak: `A: `."""
    hidden: Callable[[str], str] = str
    """Takes out of a text what must not be said."""
    _last_tick_at: float = 0.0
    _doing: str = ""
    _doing_since: float = 0.0
    _remaining_s: float | None = None
    _width: int = 0

    def say(self, text: str) -> None:
        """A line that stays."""
        self._clear()
        self._write(f"{self.label}{text}\n")

    def begin(self, doing: str, remaining_s: float | None, state: str = "waiting for the first token") -> None:
        """Something new begins; remaining_s is the estimate for the rest of the sweep, this included."""
        self._doing, self._doing_since, self._remaining_s = doing, time.monotonic(), remaining_s
        self._last_tick_at = 0.0 if self._is_terminal else self._doing_since
        self.tick(state)

    def tick(self, state: str) -> None:
        """Show what is going on, when it is time to."""
        now = time.monotonic()
        if self.stream is None or now - self._last_tick_at < (_TICK_S if self._is_terminal else self.plain_tick_s):
            return
        self._last_tick_at = now
        text = f"{self.label}{self.count}{self._doing}: {state}, {now - self._doing_since:.0f} s{self._left()}"
        if self._is_terminal:
            self._clear()
            text = text[: shutil.get_terminal_size().columns - 1]  # a line that wraps can't be rewritten
            self._width = len(text)
            self._write(text)
        else:
            self._write(f"{text}\n")

    def done(self) -> None:
        """A trial ended."""
        self.num_done += 1

    def close(self) -> None:
        """Leave the terminal clean."""
        self._clear()

    @property
    def count(self) -> str:
        """`[3/18] `, or nothing before the trials are known."""
        return f"[{self.num_done}/{self.num_trials}] " if self.num_trials else ""

    @property
    def _is_terminal(self) -> bool:
        return self.stream is not None and self.stream.isatty()

    def _left(self) -> str:
        """The estimate, counted down since the trial began."""
        if self._remaining_s is None:
            return ""
        return left_text(self._remaining_s - (time.monotonic() - self._doing_since))

    def _clear(self) -> None:
        if self._width:
            self._write("\r" + " " * self._width + "\r")
            self._width = 0

    def _write(self, text: str) -> None:
        if self.stream is None:
            return
        try:
            self.stream.write(self.hidden(text))
            self.stream.flush()
        except OSError:
            # Nobody reads it any more (a closed pipe, a lost terminal): the measurement is worth more than its talk.
            self.stream = None


def left_text(left_s: float | None) -> str:
    """`, about 3.1 min left`; nothing where it is not known or not worth saying."""
    if left_s is None or left_s < 1:
        return ""
    return f", about {left_s:.0f} s left" if left_s < 99.5 else f", about {seconds_text(left_s)} left"


def remaining_s(pending: Sequence[tuple[int, int]], seen: Mapping[tuple[int, int], Sequence[float]]) -> float | None:
    """Estimate the seconds left. pending: (context length, concurrency) of the trials to come; seen: seconds that
    trials of a point took. A point not yet seen is scaled from the one most like it: with the concurrency, and with
    the length as the two longest seen differ."""
    if not seen:
        return None
    means = {point: sum(took) / len(took) for point, took in seen.items()}
    exponent = _growth_exponent(means)
    return sum(means[point] if point in means else _scaled_s(point, means, exponent) for point in pending)


def _scaled_s(point: tuple[int, int], means: Mapping[tuple[int, int], float], exponent: float) -> float:
    def ratios(other: tuple[int, int]) -> tuple[float, float]:
        return point[0] / max(other[0], 1), point[1] / other[1]

    near = min(means, key=lambda other: sum(abs(math.log(ratio)) for ratio in ratios(other)))
    len_ratio, concurrency_ratio = ratios(near)
    # Shorter ones shrink no faster than in proportion: part of every trial does not depend on the length.
    growth = math.pow(len_ratio, exponent if len_ratio > 1 else min(exponent, 1.0))
    return means[near] * growth * concurrency_ratio


def _growth_exponent(means: Mapping[tuple[int, int], float]) -> float:
    """How a trial's time grows with the length: as from one to the other of the two longest seen, at most with the
    square (attention); before there are two, as prefill is known to."""
    least: dict[int, float] = {}
    for (context_len, _), mean_s in means.items():
        least[context_len] = min(mean_s, least.get(context_len, mean_s))
    if len(least) < 2:
        return _USUAL_EXPONENT
    shorter, longer = sorted(least)[-2:]
    slope = math.log(max(least[longer], 1e-6) / max(least[shorter], 1e-6)) / math.log(longer / shorter)
    return min(max(slope, 0.0), 2.0)
