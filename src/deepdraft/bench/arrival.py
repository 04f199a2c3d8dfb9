"""When the requests of a trial are sent.

closed: `concurrency` requests are kept in flight; the next starts when one ends (no barrier between batches).
constant:RATE and poisson:RATE (open loop): the schedule is fixed before the first request is sent, and latency is
also counted from the scheduled time, so that a slow server can't slow down its own exam (coordinated omission).
"""

from __future__ import annotations

import math
import random

from deepdraft.errors import UsageError


def rate(arrival: str) -> float | None:
    """Requests a second of an open-loop arrival; None for closed. Raises UsageError for anything else."""
    if arrival == "closed":
        return None
    kind, _, value = arrival.partition(":")
    try:
        requests_per_s = float(value)
    except ValueError:
        requests_per_s = 0.0
    if kind not in ("constant", "poisson") or not (requests_per_s > 0 and math.isfinite(requests_per_s)):
        raise UsageError(
            f"not an arrival: {arrival!r}", hint="closed, constant:RATE or poisson:RATE, RATE in requests a second"
        )
    return requests_per_s


def schedule_s(arrival: str, num_requests: int, seed: int) -> tuple[float, ...] | None:
    """Seconds from the trial's start at which each request is due; None for a closed loop."""
    requests_per_s = rate(arrival)
    if requests_per_s is None:
        return None
    if arrival.startswith("constant"):
        return tuple(index / requests_per_s for index in range(num_requests))
    rng = random.Random(seed)
    times, at_s = [], 0.0
    for _ in range(num_requests):
        times.append(at_s)
        at_s += rng.expovariate(requests_per_s)
    return tuple(times)
