"""One figure at one point of two runs: what the difference is, and what may be said of it.

better, worse     1 lies outside the ratio's 95 % interval
no difference     the whole interval lies within 2 % of 1; or it has 1 and lies within 10 % of it. The text says the
                  largest difference that is still possible
cannot tell       the interval has 1 and is wider than that; or the figure is in doubt in one of the runs

Single values (a published table, one repeat) carry no noise. Two measurements of one server often differ by some per
cent, so a difference below 10 % is then not told from chance: the ratio's interval is widened by that, and says so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from deepdraft.compare.interleaving import is_interleaved, paired_values
from deepdraft.compare.pairing import PointPair
from deepdraft.guards import guards_of
from deepdraft.guards.guard import PREFILL_FIGURES
from deepdraft.metrics import Point
from deepdraft.metrics.observed import observed_of
from deepdraft.records import Run
from deepdraft.stats.interval import Interval
from deepdraft.stats.ratio import RatioEstimate, paired_ratio, unpaired_ratio

Answer = Literal["better", "worse", "no difference", "cannot tell"]

FIGURES = ("ttft_s", "tpot_s", "tokens_per_step", "output_tok_s")
"""What is compared, in the order it is shown. `output_tok_s` counts only where several requests run at once."""
_MORE_IS_BETTER = frozenset({"tokens_per_step", "output_tok_s"})
_SAME_FRAC = 0.02
_WIDE_FRAC = 0.10
SINGLE_NOISE_FRAC = 0.10


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One figure of a pair of points."""

    figure: str
    before: float
    """The baseline's median."""
    after: float
    ratio: RatioEstimate
    """after / before."""
    answer: Answer
    text: str
    """The answer in words: "no difference larger than 4 %"."""
    is_interleaved: bool
    reason: str | None = None
    """Why it can't be told; None when it can."""
    is_in_doubt: bool = False
    """A violated guard puts the figure in doubt in one of the runs."""

    @property
    def is_more_better(self) -> bool:
        """Whether a larger figure is the better one."""
        return self.figure in _MORE_IS_BETTER


def verdicts_of(pair: PointPair, before: Run, after: Run) -> tuple[Verdict, ...]:
    """The verdicts on every figure that both points have."""
    together = is_interleaved(pair, before, after)
    doubts = {
        name: violated_guards(run, point, ignore_drift=together)
        for name, run, point in (("A", before, pair.before), ("B", after, pair.after))
    }
    verdicts = []
    for figure in FIGURES:
        if figure == "output_tok_s" and pair.concurrency == 1:
            continue
        found = _verdict(pair, figure, is_paired=together)
        if found is None:
            continue
        doubted = [f"{by} in {name}" for name, figures in doubts.items() for by in figures.get(figure, ())]
        verdicts.append(_in_doubt(found, doubted) if doubted else found)
    return tuple(verdicts)


def _verdict(pair: PointPair, figure: str, *, is_paired: bool) -> Verdict | None:
    seen = observed_of([pair.before], figure), observed_of([pair.after], figure)
    if not seen[0] or not seen[1]:
        return None
    (before,), (after,) = seen
    first, second = paired_values(pair, figure)
    if is_paired and len(first) > 1:
        ratio = paired_ratio(first, second)
    else:
        ratio = unpaired_ratio(before, after)
    if ratio.minimum_detectable_frac is None:
        ratio = _widened(ratio)
    answer, text, reason = _answer(figure, ratio)
    return Verdict(
        figure=figure,
        before=before.middle,
        after=after.middle,
        ratio=ratio,
        answer=answer,
        text=text,
        is_interleaved=ratio.num_pairs is not None and is_paired,
        reason=reason,
    )


def _widened(ratio: RatioEstimate) -> RatioEstimate:
    """A ratio of single values with the noise that such values are taken to have."""
    low, high = (
        (ratio.interval.low, ratio.interval.high) if ratio.interval is not None else (ratio.value, ratio.value)
    )
    is_rounded = ratio.interval is not None
    method = f"single values: {SINGLE_NOISE_FRAC:.0%} of noise assumed" + (", rounding added" if is_rounded else "")
    return replace(
        ratio,
        interval=Interval(low=low / (1 + SINGLE_NOISE_FRAC), high=high * (1 + SINGLE_NOISE_FRAC), method=method),
        note="single values: the noise is not known",
    )


def _answer(figure: str, ratio: RatioEstimate) -> tuple[Answer, str, str | None]:
    """The answer, its words, and why it can't be told."""
    assert ratio.interval is not None
    low, high = ratio.interval.low, ratio.interval.high
    largest = max(high - 1, 1 - low)
    if largest <= _SAME_FRAC:
        return "no difference", _no_difference(largest), None
    if low > 1 or high < 1:
        is_better = (low > 1) == (figure in _MORE_IS_BETTER)
        return ("better", "better", None) if is_better else ("worse", "worse", None)
    if largest <= _WIDE_FRAC:
        return "no difference", _no_difference(largest), None
    if ratio.minimum_detectable_frac is None:
        return (
            "cannot tell",
            "cannot tell",
            "single values: a difference this small may be chance; repeats would tell",
        )
    detectable = f"{ratio.minimum_detectable_frac:.0%}"
    return "cannot tell", "cannot tell", f"these repeats show changes of {detectable} and more; more would tell"


def _no_difference(largest: float) -> str:
    percent = 100 * largest
    return f"no difference larger than {percent:.0f} %" if percent >= 1 else "no difference larger than 1 %"


def _in_doubt(verdict: Verdict, doubted: list[str]) -> Verdict:
    return replace(
        verdict, answer="cannot tell", text="cannot tell", reason=f"in doubt: {', '.join(doubted)}", is_in_doubt=True
    )


def violated_guards(run: Run, point: Point, *, ignore_drift: bool) -> dict[str, tuple[str, ...]]:
    """Figure -> the violated guards that put it in doubt.

    ignore_drift: leave the guard of drift out, since drift hits both alike when trials alternated.
    """
    if point.reported is not None:
        cached = point.reported.is_cold is False
        return dict.fromkeys(PREFILL_FIGURES, ("a cached prompt",)) if cached else {}
    violated: dict[str, tuple[str, ...]] = {}
    for guard in guards_of(run, point):
        if guard.state == "violated" and not (guard.name == "drift" and ignore_drift):
            for name in guard.doubts:
                violated[name] = (*violated.get(name, ()), guard.name)
    return violated
