"""Guard: the server did not get slower or faster while it was measured.

What it sees: the median TTFT and time a token of each repeat, in order of time. Why it matters: clocks that
throttle, a pool that fills up, a neighbour: the middle of a trend is no property of the server, and points measured
at different times can't be compared.
Verified when the repeats lie within 10 % of each other (a change of TTFT below 3 ms is the client's own error).
Violated when they differ by more *and* follow time: every one further on than the one before (three or four repeats),
or a rank correlation with time of 0.9 and more (five and more). Otherwise they scatter without a trend: not
verifiable, with the scatter named.
When it is wrong: three repeats rise or fall by chance in one case of three, if they scatter by more than 10 %.
"""

from __future__ import annotations

from itertools import pairwise

from deepdraft.guards.guard import GuardReport, PointEvidence, State, worst_of
from deepdraft.stats import median, spearman

NAME = "drift"
MIN_REPEATS = 3
MAX_CHANGE_FRAC = 0.10
MIN_RHO = 0.9
MIN_REPEATS_FOR_RHO = 5
CLIENT_ERROR_S = 3e-3
"""A change of TTFT below this is within the client's own error and no drift of the server."""

_FIGURES = {
    "ttft_s": ("TTFT", ("ttft_s", "prefill_tok_s", "answer_ttft_s", "e2el_s")),
    "tpot_s": ("time a token", ("tpot_s", "decode_tok_s", "itl_s", "step_s")),
}


def drift(evidence: PointEvidence) -> GuardReport:
    """The verdict for one point: the worst over TTFT and time a token."""
    verdicts = []
    for name, (words, doubts) in _FIGURES.items():
        repeats = _repeats(evidence, name)
        if len(repeats) >= MIN_REPEATS:
            state, text = _verdict(repeats, floor=CLIENT_ERROR_S if name == "ttft_s" else 0.0)
            verdicts.append((state, f"{words} {text}", doubts))
    if not verdicts:
        num = max((len(_repeats(evidence, name)) for name in _FIGURES), default=0)
        text = f"{num} repeat{'s' if num != 1 else ''}: at least {MIN_REPEATS} are needed to see a drift"
        return GuardReport(name=NAME, state="not_verifiable", evidence=text)
    worst = worst_of(state for state, _, _ in verdicts)
    text = "; ".join(text for _, text, _ in verdicts)
    doubted: tuple[str, ...] = (
        () if worst == "verified" else tuple(name for state, _, names in verdicts if state == worst for name in names)
    )
    return GuardReport(name=NAME, state=worst, evidence=text, doubts=doubted)


def _repeats(evidence: PointEvidence, name: str) -> list[float]:
    """The median of the figure in each trial, in order of time."""
    values: dict[str, list[float]] = {}
    for sample in evidence.point.samples:
        if name in sample.figures:
            values.setdefault(sample.trial_id, []).append(sample.figures[name])
    return [median(values[trial.trial_id]) for trial in evidence.point.trials if trial.trial_id in values]


def _verdict(repeats: list[float], floor: float) -> tuple[State, str]:
    middle = median(repeats)
    spread = max(repeats) - min(repeats)
    percent = 100 * spread / middle if middle > 0 else 0.0
    if spread <= max(MAX_CHANGE_FRAC * middle, floor):
        return "verified", f"within {percent:.2g} % over {len(repeats)} repeats"
    change = (repeats[-1] - repeats[0]) / repeats[0] if repeats[0] > 0 else 0.0
    if abs(change) > MAX_CHANGE_FRAC and _follows_time(repeats):
        way = "rose" if change > 0 else "fell"
        return "violated", f"{way} by {100 * abs(change):.0f} % from the first repeat to the last of {len(repeats)}"
    return "not_verifiable", f"scatters by {percent:.0f} % over {len(repeats)} repeats, without a trend"


def _follows_time(repeats: list[float]) -> bool:
    if len(repeats) >= MIN_REPEATS_FOR_RHO:
        rho = spearman(repeats, range(len(repeats)))
        return rho is not None and abs(rho) >= MIN_RHO
    steps = [later - earlier for earlier, later in pairwise(repeats)]
    return all(step > 0 for step in steps) or all(step < 0 for step in steps)
