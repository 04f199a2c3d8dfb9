"""Guards: is each point what it claims to be? Each is one file and one pure function from a point's evidence to
verified, violated or not verifiable. Nothing is assumed: without evidence the answer is "not verifiable"."""

from collections.abc import Callable, Sequence

from deepdraft.guards.background_load import background_load
from deepdraft.guards.bundled_tokens import bundled_tokens
from deepdraft.guards.client_lag import client_lag
from deepdraft.guards.cold_prefix import cold_prefix
from deepdraft.guards.drift import drift, other_trends
from deepdraft.guards.early_stop import early_stop
from deepdraft.guards.event_clock import event_clock
from deepdraft.guards.guard import GuardReport, PointEvidence, State
from deepdraft.guards.prompt_len import prompt_len
from deepdraft.guards.simulated_acceptance import simulated_acceptance
from deepdraft.guards.text_label import TextLabel, text_label
from deepdraft.guards.truncation import truncation
from deepdraft.metrics import Point, points_of
from deepdraft.records import Run

GUARDS: tuple[Callable[[PointEvidence], GuardReport], ...] = (
    cold_prefix,
    prompt_len,
    truncation,
    early_stop,
    bundled_tokens,
    simulated_acceptance,
    event_clock,
    background_load,
    client_lag,
    drift,
)


def point_evidence(run: Run, point: Point, points: Sequence[Point] | None = None) -> PointEvidence:
    """What the guards may look at for one point of a run. `points`: all of the run, where they are at hand."""
    return PointEvidence(
        point=point,
        capabilities=run.header.capabilities,
        spec=run.header.spec,
        other_trends=other_trends(point, points_of(run) if points is None else points),
    )


def guards_of(run: Run, point: Point, points: Sequence[Point] | None = None) -> tuple[GuardReport, ...]:
    """Every guard's answer for one point, in a fixed order. `points`: all of the run, where they are at hand."""
    evidence = point_evidence(run, point, points)
    return tuple(guard(evidence) for guard in GUARDS)


__all__ = [
    "GUARDS",
    "GuardReport",
    "PointEvidence",
    "State",
    "TextLabel",
    "guards_of",
    "point_evidence",
    "text_label",
]
