"""The fitted laws of a run: TTFT as a + b n + c n^2, time a token as d + e n. Needs the extra `analysis`.

Figures that a violated guard doubts take no part. A law is drawn between the shortest and the longest point, never
beyond them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from deepdraft.metrics.observed import observed_of
from deepdraft.report.row import Row
from deepdraft.report.subject import Subject
from deepdraft.report.view import LawView, NoLawView
from deepdraft.stats.interval import CannotTell, Estimate
from deepdraft.stats.law import LinearLaw, QuadraticLaw, linear_law, quadratic_law
from deepdraft.stats.observed import Observed
from deepdraft.units import seconds_text

_NUM_PLACES = 32
_NAMES = {"ttft_s": "TTFT", "tpot_s": "time a token"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The laws that the points carry, and why they carry no others."""

    laws: tuple[LawView, ...]
    no_laws: tuple[NoLawView, ...]


def fit(subjects: Sequence[Subject]) -> Fit:
    """Laws of each run's first curve."""
    laws: list[LawView] = []
    no_laws: list[NoLawView] = []
    for index, subject in enumerate(subjects):
        for figure in ("ttft_s", "tpot_s"):
            observed = _observed(subject, figure)
            if not observed:
                continue
            law = quadratic_law(observed) if figure == "ttft_s" else linear_law(observed)
            if isinstance(law, CannotTell):
                reason = f"{_NAMES[figure]}: {law.reason}; {law.would_tell} would tell"
                no_laws.append(NoLawView(run_index=index, figure=figure, reason=reason))
            else:
                laws.append(_view(index, figure, law, observed))
    return Fit(laws=tuple(laws), no_laws=tuple(no_laws))


def _observed(subject: Subject, figure: str) -> tuple[Observed, ...]:
    rows: Sequence[Row] = subject.curves[0].rows if subject.curves else ()
    return observed_of([row.point for row in rows if figure not in row.doubts.violated], figure)


def _view(index: int, figure: str, law: LinearLaw | QuadraticLaw, observed: Sequence[Observed]) -> LawView:
    lens = _places([one.x for one in observed])
    estimates = [law.at(length) for length in lens]
    intervals = [estimate.interval for estimate in estimates]
    known = [interval for interval in intervals if interval is not None]
    has_intervals = len(known) == len(intervals)
    return LawView(
        run_index=index,
        figure=figure,
        formula=f"{_NAMES[figure]} = {_formula(law)}",
        context_lens=lens,
        values=tuple(estimate.value for estimate in estimates),
        lows=tuple(interval.low for interval in known) if has_intervals else None,
        highs=tuple(interval.high for interval in known) if has_intervals else None,
        doubts=(*_curvature(law), *law.doubts),
    )


def _places(xs: Sequence[float]) -> tuple[float, ...]:
    """Evenly spaced in log length, the measured lengths among them."""
    low, high = math.log(min(xs)), math.log(max(xs))
    between = {math.exp(low + (high - low) * step / (_NUM_PLACES - 1)) for step in range(1, _NUM_PLACES - 1)}
    return tuple(sorted(between | set(xs)))


def _formula(law: LinearLaw | QuadraticLaw) -> str:
    if isinstance(law, LinearLaw):
        return f"{_time(law.intercept, 0)} + {_time(law.slope, 1)} a 1k tokens of context"
    return f"{_time(law.a, 0)} + {_time(law.b, 1)} n + {_time(law.c, 2)} n², n in 1k tokens"


def _time(estimate: Estimate, power: int) -> str:
    """A coefficient for lengths in thousands of tokens, with its interval."""
    factor = 1e3**power
    text = _signed(estimate.value * factor)
    if estimate.interval is None:
        return text
    return f"{text} [{_signed(estimate.interval.low * factor)}, {_signed(estimate.interval.high * factor)}]"


def _signed(seconds: float) -> str:
    if seconds == 0:
        return "0 s"
    if abs(seconds) < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return ("-" if seconds < 0 else "") + seconds_text(abs(seconds))


def _curvature(law: LinearLaw | QuadraticLaw) -> tuple[str, ...]:
    return (f"quadratic: {law.is_quadratic}; {law.rests_on}",) if isinstance(law, QuadraticLaw) else ()
