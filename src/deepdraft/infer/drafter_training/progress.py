"""How far a part of a job has come: what a command line shows and a log keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One look at a part of a job."""

    part: str
    """writing, features, training, evaluation"""
    num_done: int
    num_all: int
    unit: str
    """Of what is counted: answers, samples, steps"""
    elapsed_s: float
    """Since this process began with the part."""
    num_before: int = 0
    """Done before this process began."""
    loss: float | None = None
    """Mean of the steps since the last look, nats a drafted token."""

    @property
    def eta_s(self) -> float | None:
        """Seconds that the rest takes at the speed so far; None where nothing is done yet."""
        num_new = self.num_done - self.num_before
        if num_new <= 0:
            return None
        return self.elapsed_s / num_new * (self.num_all - self.num_done)

    @property
    def text(self) -> str:
        """One line for a person."""
        words = f"{self.part}: {self.num_done} of {self.num_all} {self.unit}"
        if self.loss is not None:
            words += f", loss {self.loss:.3f}"
        if self.eta_s is not None and self.num_done < self.num_all:
            words += f", {_duration(self.eta_s)} left"
        return words


Report = Callable[[Progress], None]


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d} min" if minutes else f"{rest} s"
