"""A whole results file in memory."""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.records.line import End, Header, Measurement, Note, Refusal, Trial
from deepdraft.records.reported import Reported


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Everything one results file holds, in the order it was written."""

    header: Header
    measurements: tuple[Measurement, ...] = ()
    trials: tuple[Trial, ...] = ()
    reported: tuple[Reported, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    notes: tuple[Note, ...] = ()
    ends: tuple[End, ...] = ()
    damage: tuple[str, ...] = ()
    """What could not be read, one sentence each."""

    @property
    def is_complete(self) -> bool:
        """Whether the last thing the file says is that the sweep completed."""
        return bool(self.ends) and self.ends[-1].outcome == "complete"
