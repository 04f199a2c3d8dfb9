"""One figure of several points as `stats` wants it: the independent repeats at each actual length, with what rounding
did to them."""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.metrics.figure import TRIAL_FIGURES
from deepdraft.metrics.point import Point
from deepdraft.stats.observed import Observed, reciprocal
from deepdraft.stats.summary import median

_INVERSES = {"tpot_s": "decode_tok_s", "decode_tok_s": "tpot_s"}


def observed_of(points: Sequence[Point], name: str) -> tuple[Observed, ...]:
    """The figure at each point that has it, in the order of the points.

    A trial is one repeat: of several requests in it the median is taken. Which points make one curve (same
    concurrency, same workload, nothing in doubt) is the caller's choice.
    """
    return tuple(one for point in points if (one := _observed(point, name)) is not None)


def repeats_of(point: Point, name: str) -> dict[int | None, float]:
    """The figure of each trial, by its repeat index (None: the trial was cut short), in order of time."""
    by_trial: dict[str, list[float]] = {}
    indexes: dict[str, int | None] = {}
    for sample in point.samples:
        if name in sample.figures:
            by_trial.setdefault(sample.trial_id, []).append(sample.figures[name])
            indexes[sample.trial_id] = sample.repeat_index
    return {indexes[trial_id]: median(values) for trial_id, values in by_trial.items()}


def _observed(point: Point, name: str) -> Observed | None:
    figure = point.figures.get(name)
    if figure is None or figure.summary.low <= 0:
        return None
    if point.reported is not None:
        return _reported(point, name)
    repeats = repeats_of(point, name)
    if name in TRIAL_FIGURES or not repeats:  # only the brief is known of what a trial tells as a whole
        brief = figure.summary
        return Observed(x=point.context_len, values=(brief.low, brief.median, brief.high)[: brief.num_samples])
    return Observed(x=point.context_len, values=tuple(repeats.values()), num_behind=point.concurrency)


def _reported(point: Point, name: str) -> Observed | None:
    assert point.reported is not None
    said = point.reported.figures.get(name)
    if said is not None:
        return Observed(
            x=point.context_len, values=said.values, half_width=said.half_width, num_behind=said.num_samples
        )
    other = point.reported.figures.get(_INVERSES.get(name, ""))
    if other is not None and min(other.values) > (other.half_width or 0.0):
        return reciprocal(
            Observed(
                x=point.context_len,
                values=other.values,
                half_width=other.half_width,
                num_behind=other.num_samples,
            )
        )
    figure = point.figures[name]
    return Observed(x=point.context_len, values=(figure.summary.median,), half_width=figure.half_width)
