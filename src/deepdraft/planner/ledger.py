"""Where a device's memory goes: entries with their certainty and source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Certainty = Literal["exact", "formula", "estimate", "measured"]
"""exact: counted in stored bytes. formula: the engine's own arithmetic, or follows from shapes. estimate: seen
elsewhere, or an upper bound. measured: from a start of this deployment."""
Place = Literal["outside", "weights", "pool", "slack", "spike"]
"""outside: gone before the engine counts (driver, context, communication). weights and pool: what the engine's
fraction is spent on, with whatever else the engine counts there. slack: permanent, beside the fraction. spike: needed
while a prefill chunk runs, and free before and after."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """Bytes of one device. Negative where an engine counts more than is truly used."""

    name: str
    """Short and plain: "CUDA graph KV indices"."""
    num_bytes: int
    place: Place
    certainty: Certainty
    source: str
    """The formula in words, and where it stands: "max batch x draft tokens x context limit x 8 bytes (Triton
    backend)"."""
    error_bytes: int = 0
    """How far it may be off either way; 0 for exact and formula entries."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """The entries of one device, in the order in which memory is taken."""

    entries: tuple[LedgerEntry, ...]

    def total_bytes(self, *places: Place) -> int:
        """Sum of the entries of these places."""
        return sum(entry.num_bytes for entry in self.entries if entry.place in places)

    def error_bytes(self, *places: Place) -> int:
        """How far that sum may be off: the errors added up, as if all erred the same way."""
        return sum(entry.error_bytes for entry in self.entries if entry.place in places)

    def at(self, *places: Place) -> tuple[LedgerEntry, ...]:
        """The entries of these places."""
        return tuple(entry for entry in self.entries if entry.place in places)
