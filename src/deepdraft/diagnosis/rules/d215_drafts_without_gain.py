"""Two drafting configurations with the same tokens a step, one of them slower.

What it sees: two runs with a drafter at the same length: tokens a step equal within 5 % (or as many steps for the
same answer), time per token more than 5 % apart.
Why it matters: the slower one pays for drafts (a tree's further nodes) that accept nothing more.
Evidence needed: counts of steps in both runs, and both in the same mode (CUDA graphs or eager).
Remedy: the smaller draft. Compare a tree with the same drafter's chain, not with no speculation.
When it is wrong: other differences between the runs.
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import num_steps
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.mode import is_eager
from deepdraft.diagnosis.number import percent, plain
from deepdraft.diagnosis.pairing import Pair, pairs

CODE = "D215"
NAME = "drafts_without_gain"
SAME_FRAC = 0.05
MIN_LOSS_FRAC = 0.05


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for each run that gets as many tokens a step faster."""
    if not case.speculates or is_eager(case):
        return ()
    found = []
    for other in case.others:
        if other.speculates and not is_eager(other):
            slower = [pair for pair in pairs(case, other, "tpot_s") if _is_slower(pair) and _has_same_steps(pair)]
            if slower:
                found.append(_finding(case, other, slower[-1]))
    return tuple(found)


def _is_slower(pair: Pair) -> bool:
    own, theirs = pair.own.limits("tpot_s"), pair.other.limits("tpot_s")
    return own is not None and theirs is not None and own[0] > theirs[1] and pair.ratio < 1 - MIN_LOSS_FRAC


def _has_same_steps(pair: Pair) -> bool:
    for figure in ("tokens_per_step", "acceptance_len"):
        own, theirs = pair.own.median(figure), pair.other.median(figure)
        if own is not None and theirs is not None:
            return abs(own / theirs - 1) <= SAME_FRAC
    own_steps, their_steps = num_steps(pair.own), num_steps(pair.other)
    return own_steps is not None and own_steps == their_steps


def _finding(case: Case, other: Case, pair: Pair) -> Finding:
    return Finding(
        code=CODE,
        name=NAME,
        severity="warning",
        summary=f"At {pair.own.name} {case.name} needs as many steps as {other.name} for its tokens and decodes "
        f"{percent(1 - pair.ratio, 3)} slower ({plain(1 / pair.own_value, 4)} against "
        f"{plain(1 / pair.other_value, 4)} tok/s): what it drafts beyond the other gains nothing.",
        evidence=(
            Evidence(name="tok/s", value=1 / pair.own_value, source=case.name),
            Evidence(name="tok/s", value=1 / pair.other_value, source=other.name),
        ),
        remedy=f"Use the configuration of {other.name}, or {case.say('draft_len')}.",
        worth=1 / pair.ratio,
    )
