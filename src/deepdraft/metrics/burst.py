"""Which token events arrived together: the events of one verify step, or of one write of something in between.

A verify step commits several tokens at once. Some servers put them into one event; others (llama.cpp) send an event a
token, so that the events of a step come within a fraction of a millisecond of each other and then nothing comes for a
whole step. Grouping by time gives the steps back without the server's help.

How the line between "together" and "the next step" is drawn: let the typical gap be the time-weighted median (half
of all time is spent in gaps at least that long). A gap below a quarter of it belongs to the burst before. Two checks
keep that from going wrong, each answered by looking at the shorter gaps alone: fewer than MIN_STEPS gaps reach the
line (those were stalls, not the rhythm), or the gaps below the line take more than a tenth of the time (they are
steps too: events of one burst cost next to none). Where that ends without a rhythm, events of one read stay together
and nothing else does.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

MIN_STEPS = 4
"""Fewer gaps than these are no rhythm."""
SAME_BURST_FRAC = 0.25
"""A gap below this share of the typical gap joins two events."""
MAX_JOINED_TIME_FRAC = 0.10
"""The gaps inside bursts may take at most this share of the time."""
MIN_STEP_S = 1e-3
"""When long gaps are set aside as stalls: a rhythm faster than this is how one write comes out of a socket."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bursts:
    """Token events grouped by arrival."""

    ends_s: tuple[float, ...]
    """The time of each burst's last event. Ends rather than starts, so that two steps joined by mistake still leave
    every rate right: a burst's tokens have all arrived by its end."""
    num_events: tuple[int, ...]
    """Events in each burst."""
    typical_gap_s: float | None
    """The gap the line was drawn from; None when only events of one read were joined."""
    why_not: str | None
    """Why the rhythm of the steps could not be found; None when it was."""


@lru_cache(maxsize=64)  # a dozen figures of one request ask for the same bursts, one after the other
def bursts_of(times_s: tuple[float, ...]) -> Bursts:
    """Group event times (in order) into bursts."""
    gaps_s = [later - earlier for earlier, later in pairwise(times_s)]
    typical_s, why_not = _typical_gap(gaps_s)
    line_s = SAME_BURST_FRAC * typical_s if typical_s is not None else 0.0
    ends: list[float] = []
    sizes: list[int] = []
    for place, at_s in enumerate(times_s):
        if place and (gaps_s[place - 1] <= 0 or gaps_s[place - 1] < line_s):
            sizes[-1] += 1
            ends[-1] = at_s
        else:
            ends.append(at_s)
            sizes.append(1)
    return Bursts(ends_s=tuple(ends), num_events=tuple(sizes), typical_gap_s=typical_s, why_not=why_not)


def _typical_gap(gaps_s: list[float]) -> tuple[float | None, str | None]:
    candidates = sorted(gap for gap in gaps_s if gap > 0)
    if len(candidates) < MIN_STEPS:
        return None, f"the tokens arrived in {len(candidates) + 1 if gaps_s else 1} reads: too few steps to tell"
    is_top = True
    while len(candidates) >= MIN_STEPS:
        typical_s = _time_weighted_median(candidates)
        if not is_top and typical_s < MIN_STEP_S:
            break
        line_s = SAME_BURST_FRAC * typical_s
        short = [gap for gap in candidates if gap < line_s]
        num_long = len(candidates) - len(short)
        if num_long >= MIN_STEPS and math.fsum(short) <= MAX_JOINED_TIME_FRAC * math.fsum(candidates):
            return typical_s, None
        candidates, is_top = short, False
    num_long = len([gap for gap in gaps_s if gap > 0]) - len(candidates)
    return None, f"{num_long} long gaps among {len(candidates)} short ones: steps or stalls, too few to tell"


def _time_weighted_median(ordered: list[float]) -> float:
    half = math.fsum(ordered) / 2
    total = 0.0
    for gap in ordered:
        total += gap
        if total >= half:
            return gap
    return ordered[-1]
