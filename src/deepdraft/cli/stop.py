"""A stop that can be asked for: the first Ctrl-C or SIGTERM is answered between two turns, a second one at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Stop:
    """Whether a signal came."""

    def __init__(self) -> None:
        self.is_asked = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """What a signal does."""
        if self.is_asked:
            raise KeyboardInterrupt
        self.is_asked = True


@contextmanager
def stop_signal() -> Iterator[Stop]:
    """Take over the two signals for the block; those that the shell had ignored stay ignored."""
    stop = Stop()
    numbers = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop.ask) for number in numbers}
    try:
        yield stop
    finally:
        for number in numbers:
            signal.signal(number, before[number])
