"""Whether the trials of two points alternated, A B B A or A B A B: only then what drifts hits both alike, and trials
can be taken in pairs. Read from the clocks in the files, not from what somebody says was done."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from itertools import pairwise

from deepdraft.compare.pairing import PointPair
from deepdraft.metrics import Point
from deepdraft.metrics.observed import repeats_of
from deepdraft.records import Run

_CLOCK_SLACK_S = 0.05
"""Two files' clocks begin at moments that are written down to the millisecond."""


def is_interleaved(pair: PointPair, before: Run, after: Run) -> bool:
    """Whether, in order of time, each two trials that follow each other are one of A and one of B, of the same
    repeat, and none began before the one before it had ended."""
    trials = sorted([*_trials(before, pair.before, "A"), *_trials(after, pair.after, "B")])
    if len(trials) < 2 or len(trials) % 2:
        return False
    for first, second in zip(trials[::2], trials[1::2], strict=True):
        if {first[2], second[2]} != {"A", "B"} or first[3] != second[3]:
            return False
    return all(earlier[1] <= later[0] + _CLOCK_SLACK_S for earlier, later in pairwise(trials))


def paired_values(pair: PointPair, name: str) -> tuple[list[float], list[float]]:
    """A figure's values of the repeats that both have, in the same order."""
    first, second = repeats_of(pair.before, name), repeats_of(pair.after, name)
    shared = [index for index in first if index is not None and index in second]
    return _values(first, shared), _values(second, shared)


def _values(repeats: Mapping[int | None, float], indexes: list[int]) -> list[float]:
    return [repeats[index] for index in indexes]


def _trials(run: Run, point: Point, name: str) -> list[tuple[float, float, str, int]]:
    """Begin and end by the wall clock in seconds, whose, which repeat; nothing for reported points."""
    try:
        created_s = datetime.datetime.fromisoformat(run.header.created_at).timestamp()
    except ValueError:
        return []
    return [
        (created_s + group.trial.started_at_s, created_s + group.trial.ended_at_s, name, group.trial.repeat_index)
        for group in point.trials
        if group.trial is not None
    ]
