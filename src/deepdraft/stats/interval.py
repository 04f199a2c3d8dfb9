"""What a statistic says: a value with its interval, or why it can't be told. Plain records; nothing is computed here.

No interval is ever invented: where the samples carry none it is None, and `note` says why.
"""

from __future__ import annotations

from dataclasses import dataclass

LEVEL = 0.95
"""The nominal coverage of every interval of this package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A range that covers the true value with probability `level`, under the assumptions of `method`."""

    low: float
    high: float
    level: float = LEVEL
    method: str
    """How it was found and what that assumes, in a few words."""

    def has(self, value: float) -> bool:
        """Whether the value lies in it, ends included."""
        return self.low <= value <= self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value and how sure it is."""

    value: float
    interval: Interval | None = None
    """None: what is at hand carries none."""
    note: str | None = None
    """What a reader must know beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CannotTell:
    """The samples don't carry an answer."""

    reason: str
    would_tell: str
    """Which further points or repeats would, in words."""
    propose: tuple[float, ...] = ()
    """The same as places to measure (context lengths); empty where it is repeats that lack."""
    between: tuple[float, float] | None = None
    """Where the answer must lie, as far as that is known."""
