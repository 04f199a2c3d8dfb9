"""Which figures of a point are in doubt, and why: the bridge from guards to what is printed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepdraft.guards import GUARDS, GuardReport, TextLabel, point_evidence, text_label
from deepdraft.guards.guard import PREFILL_FIGURES
from deepdraft.metrics import Point
from deepdraft.metrics.speculation import LIFETIME_AVERAGE
from deepdraft.records import Run

VIOLATED_MARK = "!"
UNVERIFIED_MARK = "?"
TEXT_LABEL = "text_label"
LIFETIME_LABEL = "lifetime_average"
"""Not a guard: the engine tells an average over its life only, and the source beside the figure says so."""

SOURCE_LABEL = "source"
"""Not a guard: the source of a reported figure leaves it in doubt, and the remark beside the table says how."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointDoubts:
    """A point's guards and the figures they put in doubt."""

    guards: tuple[GuardReport, ...]
    text: TextLabel
    violated: dict[str, tuple[str, ...]]
    """Figure -> the guards whose violation puts it in doubt."""
    unverified: dict[str, tuple[str, ...]]
    """Figure -> the guards that could not verify it."""

    def mark(self, *names: str) -> str:
        """`!` when a violated guard doubts one of the figures, `?` when one could not be verified, else nothing."""
        if any(name in self.violated for name in names):
            return VIOLATED_MARK
        return UNVERIFIED_MARK if any(name in self.unverified for name in names) else ""


def point_doubts(run: Run, point: Point, points: Sequence[Point] | None = None) -> PointDoubts:
    """The doubts about one point. `points`: all of the run, where they are at hand."""
    evidence = point_evidence(run, point, points)
    guards = _reported_guards(point) if point.reported is not None else tuple(guard(evidence) for guard in GUARDS)
    text = text_label(evidence)
    violated: dict[str, list[str]] = {}
    unverified: dict[str, list[str]] = {}
    for guard in guards:
        into = violated if guard.state == "violated" else unverified
        for name in guard.doubts:
            into.setdefault(name, []).append(guard.name)
    for name in text.doubts:
        violated.setdefault(name, []).append(TEXT_LABEL)
    for name, figure in point.figures.items():
        if figure.doubts:
            unverified.setdefault(name, []).append(SOURCE_LABEL)
    acceptance = point.figures.get("acceptance_len")
    if acceptance is not None and any(LIFETIME_AVERAGE in source for source in acceptance.sources):
        unverified.setdefault("acceptance_len", []).append(LIFETIME_LABEL)
    return PointDoubts(
        guards=guards,
        text=text,
        violated={name: tuple(by) for name, by in violated.items()},
        unverified={name: tuple(by) for name, by in unverified.items()},
    )


def _reported_guards(point: Point) -> tuple[GuardReport, ...]:
    """No guard can judge a point whose requests are not known; what its source says of hits is passed on."""
    is_cold = point.reported.is_cold if point.reported is not None else None
    if is_cold is None:
        cold = GuardReport(
            name="cold_prefix",
            state="not_verifiable",
            evidence="the source does not tell whether its prompts were cold",
            doubts=tuple(name for name in PREFILL_FIGURES if name in point.figures),
        )
    elif is_cold:
        cold = GuardReport(name="cold_prefix", state="not_verifiable", evidence="cold, by the source's word")
    else:
        cold = GuardReport(
            name="cold_prefix",
            state="violated",
            evidence="prompts were in the prefix cache, by the source's word",
            doubts=tuple(name for name in PREFILL_FIGURES if name in point.figures),
        )
    others = GuardReport(
        name="every other guard",
        state="not_verifiable",
        evidence="the requests behind reported figures are not known",
    )
    return cold, others
