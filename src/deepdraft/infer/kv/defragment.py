"""Which pages of a request are worth moving together. Moving them is the ledger's and the pool's.

Requests that grow side by side take pages in turn, so each one's lie apart, and attention reads a run after the
other instead of one. What is moved is a stretch of whole runs, so every move leaves fewer runs than there were, and
moving comes to an end by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np


def run_lens(pages: Sequence[int]) -> list[int]:
    """Lengths of the runs of consecutive pages, in order; none of no pages. Asked between any two steps, so no step
    is taken for each page."""
    breaks = np.flatnonzero(np.diff(np.asarray(pages, dtype=np.int64)) != 1) + 1
    return [stop - start for start, stop in pairwise((0, *breaks.tolist(), len(pages))) if stop > start]


def scattered_stretch(pages: Sequence[int], max_pages: int) -> tuple[int, int] | None:
    """The stretch pages[start:stop] of at most `max_pages` that is made of the most whole runs, two or more; the
    first of several. None where there is none."""
    starts = (0, *accumulate(run_lens(pages)))
    best: tuple[int, int] | None = None
    most_runs, stop = 1, 0
    for first, start in enumerate(starts):
        while stop + 1 < len(starts) and starts[stop + 1] - start <= max_pages:
            stop += 1
        if stop - first > most_runs:
            most_runs, best = stop - first, (start, starts[stop])
    return best
