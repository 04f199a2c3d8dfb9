"""What a guard is given and what it answers.

A guard is a pure function of a point's evidence. It never assumes: without evidence it says "not verifiable".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from deepdraft.metrics import Point
from deepdraft.records import Capabilities, Measurement, SweepSpec

State = Literal["verified", "violated", "not_verifiable"]

PREFILL_FIGURES = (
    "ttft_s",
    "answer_ttft_s",
    "prefill_tok_s",
    "e2el_s",
    "ttft_from_scheduled_s",
    "e2el_from_scheduled_s",
)
DECODE_FIGURES = ("tpot_s", "decode_tok_s", "itl_s", "tokens_per_step", "step_s")
THROUGHPUT_FIGURES = ("output_tok_s", "total_tok_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class PointEvidence:
    """Everything a guard may look at."""

    point: Point
    capabilities: Capabilities
    spec: SweepSpec
    other_trends: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """How the run's other points moved over the repeats (see `drift.other_trends`); empty: there are none."""

    @property
    def requests(self) -> tuple[Measurement, ...]:
        """The requests that succeeded and are no warm-ups, refused pairs included."""
        return tuple(request for trial in self.point.trials for request in trial.measured)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardReport:
    """A guard's answer for one point."""

    name: str
    state: State
    evidence: str
    """One sentence a reader can check."""
    doubts: tuple[str, ...] = ()
    """The figures it puts in doubt, by the names of the catalogue ("context_len" for the length itself)."""


_BY_WEIGHT: tuple[State, ...] = ("violated", "not_verifiable", "verified")


def worst_of(states: Iterable[State]) -> State:
    """The state of the whole from those of its parts. Raises ValueError without parts."""
    return min(states, key=_BY_WEIGHT.index)


def share_text(part: float, whole: float) -> str:
    """A share in per cent for a sentence; more digits below 10 %."""
    if not whole:
        return "0 %"
    percent = 100 * part / whole
    return f"{percent:.0f} %" if percent >= 10 or percent == 0 else f"{percent:.2g} %"


def range_text(counts: list[int]) -> str:
    """`20`, or `20 to 31` when they differ. Raises ValueError without counts."""
    low, high = min(counts), max(counts)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"
