"""Two runs as a whole: the verdicts per point, and the context length beyond which the second stops being faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deepdraft.compare.pairing import Unpaired, pairing
from deepdraft.compare.verdict import Verdict, verdicts_of
from deepdraft.records import Run
from deepdraft.stats.crossover import Crossover, NoCrossover, RatioAt, crossover
from deepdraft.stats.interval import CannotTell

CROSSOVER_FIGURE = "tpot_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPoint:
    """One context length at one concurrency, in both runs."""

    context_len: int
    """The baseline's actual length."""
    asked_context_len: int
    concurrency: int
    verdicts: tuple[Verdict, ...]

    def verdict(self, figure: str) -> Verdict | None:
        """The verdict on a figure; None where one of the runs does not have it."""
        return next((verdict for verdict in self.verdicts if verdict.figure == figure), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """B against the baseline A."""

    before: Run
    after: Run
    points: tuple[ComparedPoint, ...]
    unpaired: tuple[Unpaired, ...]
    remarks: tuple[str, ...]
    crossover: Crossover | NoCrossover | CannotTell
    """Of the time a token, at the smallest concurrency that both have."""
    crossover_concurrency: int | None
    """None when there is no pair."""
    left_out: tuple[int, ...]
    """Context lengths whose time a token is in doubt, so that the crossover does without them."""


def compare_runs(before: Run, after: Run) -> Comparison:
    """Compare two runs; `before` is the baseline."""
    found = pairing(before, after)
    points = tuple(
        ComparedPoint(
            context_len=pair.context_len,
            asked_context_len=pair.before.asked_context_len,
            concurrency=pair.concurrency,
            verdicts=verdicts_of(pair, before, after),
        )
        for pair in found.pairs
    )
    concurrency = min((point.concurrency for point in points), default=None)
    curve = [point for point in points if point.concurrency == concurrency]
    usable = [point for point in curve if not _is_in_doubt(point)]
    return Comparison(
        before=before,
        after=after,
        points=points,
        unpaired=found.unpaired,
        remarks=found.remarks,
        crossover=_crossover(usable),
        crossover_concurrency=concurrency,
        left_out=tuple(point.context_len for point in curve if _is_in_doubt(point)),
    )


def _crossover(points: Sequence[ComparedPoint]) -> Crossover | NoCrossover | CannotTell:
    """From the points whose time a token is in no doubt."""
    ratios = []
    for point in points:
        verdict = point.verdict(CROSSOVER_FIGURE)
        if verdict is not None:
            ratios.append(RatioAt(x=point.context_len, ratio=verdict.ratio))
    if not ratios:
        return CannotTell(
            reason="no point has a time a token in both that is free of doubt",
            would_tell="the same context lengths, measured in both",
        )
    return crossover(ratios)


def _is_in_doubt(point: ComparedPoint) -> bool:
    verdict = point.verdict(CROSSOVER_FIGURE)
    return verdict is not None and verdict.is_in_doubt
