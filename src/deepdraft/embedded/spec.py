"""What every embedded server is told, whichever engine stands behind it.

The engines' own settings stand in their own modules (`deepdraft.py`, `llamacpp.py`); starting and ending the child is
`process.py`'s.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

_ROUNDED_TO = 256
"""A context is set up in steps of so many tokens: llama.cpp rounds up by itself, and pages divide it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSpec(ABC):
    """How an embedded server is set up: what all engines have in common."""

    label: ClassVar[str]
    """Engine and model, for people."""
    default_context_lens: ClassVar[str]
    """What a sweep measures that names no context length: as deep as two cores get in about two minutes."""

    context_len: int = 8_192
    """Tokens of the longest request, its output included."""
    num_slots: int = 1
    """Requests of that length that run at once."""
    num_threads: int | None = None
    """None: what measured best for this engine beside a client on the same machine."""
    flags: tuple[str, ...] = ()
    """Further words for the engine's own command line. Raises UsageError in `command` where it takes none."""

    @abstractmethod
    def command(self) -> list[str]:
        """The child's command line. Raises UsageError, with the commands that install it, when engine or model are
        missing."""

    def environment(self) -> Mapping[str, str]:
        """Variables that the child gets on top of its parent's."""
        return {}

    @property
    def slot_len(self) -> int:
        """`context_len`, rounded up to what engines deal in."""
        return -(-self.context_len // _ROUNDED_TO) * _ROUNDED_TO


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))
