"""Guard: the server did not get slower or faster while it was measured.

What it sees: the median TTFT and the time of a decode step of each repeat, in order of time, and how the other points
of the run moved from repeat to repeat. The step is looked at where every repeat has it, since with a drafter the time
of a token also varies with the number of accepted drafts, which is chance; else the time of a token.
Why it matters: clocks that throttle, a pool that fills up, a neighbour: the middle of a trend is no property of the
server, and points measured at different times can't be compared.
Verified when the repeats lie within 10 % of each other (a change of TTFT below 3 ms is the client's own error).
Violated when they differ by more, follow time, and chance is no explanation. They follow time when every one is
further on than the one before (three or four repeats), or the rank correlation with time is 0.9 or more (five and
more). Three repeats do so by chance in one case of three, so fewer than six count only with a second witness: the
change is above 25 % and no single jump, or the run's other points follow time in the same direction by more than
10 %, on average. Otherwise not verifiable, with the change or the scatter named.
When it is wrong: a drift of 10 to 25 % in a run of one point, or one that strikes a single point, is not told from
chance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from deepdraft.guards.guard import GuardReport, PointEvidence, State, worst_of
from deepdraft.metrics import Point
from deepdraft.stats import mean_of_samples, median, spearman

NAME = "drift"
MIN_REPEATS = 3
MIN_REPEATS_ALONE = 6
"""From so many repeats on the order alone is evidence: chance gives it in less than 2 % of all cases."""
MAX_CHANGE_FRAC = 0.10
MAX_CHANCE_FRAC = 0.25
MAX_JUMP_SHARE = 0.8
"""One step between repeats that makes up more of the change than this is a hiccup in one repeat, not a trend."""
MIN_RHO = 0.9
MIN_REPEATS_FOR_RHO = 5
CLIENT_ERROR_S = 3e-3
"""A change of TTFT below this is within the client's own error and no drift of the server."""

_WORDS = {"ttft_s": "TTFT", "step_s": "time a step", "tpot_s": "time a token"}
_PREFILL_DOUBTS = ("ttft_s", "prefill_tok_s", "answer_ttft_s", "e2el_s")
_DECODE_DOUBTS = ("tpot_s", "decode_tok_s", "itl_s", "step_s")


def drift(evidence: PointEvidence) -> GuardReport:
    """The verdict for one point: the worst over TTFT and time a step (or a token)."""
    point = evidence.point
    verdicts = []
    for name, doubts in (("ttft_s", _PREFILL_DOUBTS), (_decode_figure(point), _DECODE_DOUBTS)):
        repeats = _repeats(point, name)
        if len(repeats) >= MIN_REPEATS:
            state, text = _verdict(repeats, _floor_s(name), evidence.other_trends.get(name, ()))
            verdicts.append((state, f"{_WORDS[name]} {text}", doubts))
    if not verdicts:
        num = max(len(_repeats(point, name)) for name in _WORDS)
        text = f"{num} repeat{'s' if num != 1 else ''}: at least {MIN_REPEATS} are needed to see a drift"
        return GuardReport(name=NAME, state="not_verifiable", evidence=text)
    worst = worst_of(state for state, _, _ in verdicts)
    text = "; ".join(text for _, text, _ in verdicts)
    doubted: tuple[str, ...] = (
        () if worst == "verified" else tuple(name for state, _, names in verdicts if state == worst for name in names)
    )
    return GuardReport(name=NAME, state=worst, evidence=text, doubts=doubted)


def other_trends(point: Point, points: Sequence[Point]) -> Mapping[str, tuple[float, ...]]:
    """How the other points moved from repeat to repeat: figure of `point` -> for each of its repeats the mean, over
    the other points, of that repeat's value / the other point's own median. Repeats are interleaved over the points,
    so that the k-th repeat of each was measured in the same round. Points with another number of repeats are left
    out; without any there is no entry."""
    trends: dict[str, tuple[float, ...]] = {}
    for name in ("ttft_s", _decode_figure(point)):
        num_repeats = len(_repeats(point, name))
        if not num_repeats:
            continue
        others = [
            _scaled(repeats, _floor_s(name))
            for other in points
            if other.key != point.key
            and len(repeats := _repeats(other, name if name == "ttft_s" else _decode_figure(other))) == num_repeats
        ]
        means = [mean_of_samples(values) for values in zip(*others, strict=True)]
        if means:
            trends[name] = tuple(mean for mean in means if mean is not None)
    return trends


def _decode_figure(point: Point) -> str:
    return "step_s" if len(_repeats(point, "step_s")) >= len(_repeats(point, "tpot_s")) else "tpot_s"


def _repeats(point: Point, name: str) -> list[float]:
    """The median of the figure in each trial that has it, in order of time."""
    values: dict[str, list[float]] = {}
    for sample in point.samples:
        if name in sample.figures:
            values.setdefault(sample.trial_id, []).append(sample.figures[name])
    return [median(values[trial.trial_id]) for trial in point.trials if trial.trial_id in values]


def _floor_s(name: str) -> float:
    return CLIENT_ERROR_S if name == "ttft_s" else 0.0


def _scaled(repeats: Sequence[float], floor_s: float) -> list[float]:
    """The repeats around 1.0, in shares of their median; of something larger where `floor_s` would be above 10 % of
    the median, so that the client's own error never looks like more than 10 %."""
    middle = median(repeats)
    scale = max(middle, floor_s / MAX_CHANGE_FRAC)
    return [1.0 + (value - middle) / scale if scale > 0 else 1.0 for value in repeats]


def _verdict(repeats: list[float], floor_s: float, others: Sequence[float]) -> tuple[State, str]:
    middle = median(repeats)
    percent = 100 * (max(repeats) - min(repeats)) / middle if middle > 0 else 0.0
    scaled = _scaled(repeats, floor_s)
    if max(scaled) - min(scaled) <= MAX_CHANGE_FRAC:
        return "verified", f"within {round(percent, 1):.2g} % over {len(repeats)} repeats"
    change = scaled[-1] - scaled[0]
    if abs(change) <= MAX_CHANGE_FRAC or not _follows_time(repeats):
        return "not_verifiable", f"scatters by {percent:.0f} % over {len(repeats)} repeats, without a trend"
    shown = 100 * abs(repeats[-1] - repeats[0]) / repeats[0] if repeats[0] > 0 else percent
    way = "rose" if change > 0 else "fell"
    text = f"{way} by {shown:.0f} % from the first repeat to the last of {len(repeats)}"
    is_jump = max(abs(later - earlier) for earlier, later in pairwise(scaled)) > MAX_JUMP_SHARE * abs(change)
    if len(repeats) >= MIN_REPEATS_ALONE or (abs(change) > MAX_CHANCE_FRAC and not is_jump):
        return "violated", text
    text += " in one jump" if is_jump else ""
    if not others:
        return "not_verifiable", f"{text}, which may be chance: there is no other point to compare"
    other_change = others[-1] - others[0]
    if other_change * change > 0 and abs(other_change) > MAX_CHANGE_FRAC and _follows_time(others):
        return "violated", f"{text}, and the other points with it ({100 * other_change:+.0f} %)"
    return "not_verifiable", f"{text}, which may be chance: the other points did not ({100 * other_change:+.0f} %)"


def _follows_time(repeats: Sequence[float]) -> bool:
    if len(repeats) >= MIN_REPEATS_FOR_RHO:
        rho = spearman(repeats, range(len(repeats)))
        return rho is not None and abs(rho) >= MIN_RHO
    steps = [later - earlier for earlier, later in pairwise(repeats)]
    return all(step > 0 for step in steps) or all(step < 0 for step in steps)
