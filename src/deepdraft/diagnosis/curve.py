"""A figure against context length: the points of a run that belong on one curve, and those left out with the reason.

Points of different workloads, cold and cached prompts, and different concurrencies are different curves. A point
whose figure a guard proved wrong is on none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from deepdraft.guards import GuardReport
from deepdraft.metrics import Point
from deepdraft.stats import median
from deepdraft.stats.observed import Observed, reciprocal
from deepdraft.units import tokens_text

_INVERSE = {"tpot_s": "decode_tok_s", "decode_tok_s": "tpot_s"}
_OVER_LEN = {"ttft_s": "prefill_tok_s", "prefill_tok_s": "ttft_s"}


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedPoint:
    """A point and what the guards say of it; none of a reported point, whose requests are not known."""

    point: Point
    guards: tuple[GuardReport, ...]

    @property
    def context_len(self) -> int:
        """Prompt tokens, as counted."""
        return self.point.context_len

    @property
    def workload(self) -> str | None:
        """What was sent, where points may differ in it."""
        return self.point.reported.workload if self.point.reported is not None else None

    @property
    def is_hit(self) -> bool:
        """Whether its prompts are known to have been in a prefix cache."""
        if self.point.reported is not None:
            return self.point.reported.is_cold is False
        return self.violation("cold_prefix") is not None

    @property
    def name(self) -> str:
        """How a sentence calls it."""
        concurrency = f" at concurrency {self.point.concurrency}" if self.point.concurrency > 1 else ""
        return f"{tokens_text(self.context_len)} tokens{concurrency}"

    def violation(self, guard: str) -> GuardReport | None:
        """That guard's report if it is violated."""
        return next((each for each in self.guards if each.name == guard and each.state == "violated"), None)

    def is_refuted(self, figure: str) -> bool:
        """Whether a violated guard doubts the figure."""
        return any(each.state == "violated" and figure in each.doubts for each in self.guards)

    def median(self, figure: str) -> float | None:
        """The figure's median; None when it can't be known."""
        brief = self.point.summary(figure)
        return brief.median if brief is not None else None

    def observed(self, figure: str) -> Observed | None:
        """What the statistics want: its repeats with their rounding; None when it can't be known. Requests of one
        trial ran together and are no repeats: each trial gives their median."""
        if figure not in self.point.figures:
            return None
        x = float(self.context_len)
        if self.point.reported is None:
            values = tuple(value for value in self._trial_medians(figure) if value > 0)
            return Observed(x=x, values=values) if values else None
        said = self.point.reported.figures
        name = next(name for name in (figure, _INVERSE.get(figure, ""), _OVER_LEN.get(figure, "")) if name in said)
        values = tuple(value for value in said[name].values if value > 0)
        if not values:
            return None
        half_width = said[name].half_width
        if half_width is not None and half_width >= min(values):
            half_width = None
        printed = Observed(x=x, values=values, half_width=half_width, num_behind=said[name].num_samples)
        return printed if name == figure else reciprocal(printed, 1.0 if figure in _INVERSE else x)

    def limits(self, figure: str) -> tuple[float, float] | None:
        """The smallest and largest its median may be: by rounding, and by the samples seen."""
        seen = self.observed(figure)
        if seen is None:
            return None
        low, high = seen.rounding or (seen.middle, seen.middle)
        return min(low, *seen.values), max(high, *seen.values)

    def _trial_medians(self, figure: str) -> tuple[float, ...]:
        by_trial: dict[str, list[float]] = {}
        for sample in self.point.samples:
            if figure in sample.figures:
                by_trial.setdefault(sample.trial_id, []).append(sample.figures[figure])
        brief = self.point.summary(figure)
        return tuple(median(values) for values in by_trial.values()) or ((brief.median,) if brief else ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A figure's points by growing context length."""

    figure: str
    points: tuple[GuardedPoint, ...]
    left_out: tuple[str, ...]
    """Points that have the figure and are not on the curve, one sentence each."""

    @property
    def concurrency(self) -> int:
        """Of all its points. Raises IndexError for an empty curve."""
        return self.points[0].point.concurrency

    @property
    def last(self) -> GuardedPoint:
        """The longest. Raises IndexError for an empty curve."""
        return self.points[-1]

    @property
    def first(self) -> GuardedPoint:
        """The shortest. Raises IndexError for an empty curve."""
        return self.points[0]

    def value(self, point: GuardedPoint) -> float:
        """The figure's median at a point of the curve."""
        middle = point.median(self.figure)
        assert middle is not None
        return middle

    @property
    def observed(self) -> tuple[Observed, ...]:
        """The curve as the statistics want it."""
        return tuple(seen for point in self.points if (seen := point.observed(self.figure)) is not None)


def curve(points: Iterable[GuardedPoint], figure: str) -> Curve:
    """The largest set of points of one workload at the lowest concurrency, cold, with a figure that no guard refutes.
    Of several workloads with as many points the first is taken; a workload of a single point makes no curve beside
    others."""
    having = [point for point in points if point.median(figure) is not None]
    left_out: list[str] = []
    kept: list[GuardedPoint] = []
    lowest = min((point.point.concurrency for point in having), default=1)
    for point in having:
        if point.point.concurrency != lowest:
            continue
        if point.is_hit:
            left_out.append(f"{point.name}: its prompts were in the prefix cache")
        elif point.is_refuted(figure):
            left_out.append(f"{point.name}: a guard refutes it")
        else:
            kept.append(point)
    workloads = Counter(point.workload for point in kept)
    if len(workloads) > 1:
        (workload, num_points), *_ = workloads.most_common(1)
        left_out += [f"{point.name}: another workload" for point in kept if point.workload != workload]
        kept = [point for point in kept if point.workload == workload] if num_points > 1 else []
    kept.sort(key=lambda point: point.context_len)
    return Curve(figure=figure, points=tuple(kept), left_out=tuple(left_out))
