"""The verdict on a plan: what stays free against what the longest prefill needs."""

from __future__ import annotations

from collections.abc import Callable

from deepdraft.planner.verdict import Verdict

GIB = 2**30
PROBE = (
    "Confirm with a probe at the longest context: what a long prefill needs is measured, not profiled at the start."
)

Spike = Callable[[int], tuple[int, int]]
"""From a prompt's length to the bytes that its prefill needs, and how far they may be off. Neither falls with the
length."""


def judgement(
    *, reserve_bytes: int, reserve_error_bytes: int, spike_of: Spike, max_len: int, starts: bool = True
) -> Verdict:
    """Fails where the need of the longest prompt is above the reserve; tight where the errors of both may make it so;
    else safe.

    `starts`: whether weights and pool fit at all. `reserve_bytes` may be negative: then it does not start either.
    """
    if not starts or reserve_bytes < 0:
        return _does_not_start(reserve_bytes)
    need_bytes, error_bytes = spike_of(max_len)
    margin_bytes = reserve_bytes - need_bytes
    figures = (
        f"{reserve_bytes / GIB:.2f} GiB stay free, a prefill of {max_len:,} tokens needs {need_bytes / GIB:.2f} GiB"
    )
    if margin_bytes < 0:
        fails_at = _first_failing_len(reserve_bytes, spike_of, max_len)
        return Verdict(
            outcome="out_of_memory_in_prefill",
            summary=f"Will run out of memory in a prefill from {fails_at:,} tokens on: {figures}.",
            fails_at_len=fails_at,
            margin_bytes=margin_bytes,
            advice=(
                "Halve the prefill chunk, or lower the fraction: it died after the start, so less must be static.",
                PROBE,
            ),
        )
    doubt_bytes = error_bytes + reserve_error_bytes
    if margin_bytes < doubt_bytes:
        return Verdict(
            outcome="tight",
            summary=f"Tight: {figures}, and what is not known for sure adds up to {doubt_bytes / GIB:.2f} GiB.",
            margin_bytes=margin_bytes,
            advice=(PROBE,),
        )
    return Verdict(outcome="safe", summary=f"Safe: {figures}.", margin_bytes=margin_bytes, advice=(PROBE,))


def _does_not_start(reserve_bytes: int) -> Verdict:
    return Verdict(
        outcome="does_not_start",
        summary="Does not start: weights, pool and buffers are more than the device holds, or leave no pool at all.",
        margin_bytes=reserve_bytes,
        advice=(
            "With no room for a pool raise the fraction, or spread the weights over more devices; with no room for "
            "graphs lower it.",
        ),
    )


def _first_failing_len(reserve_bytes: int, spike_of: Spike, max_len: int) -> int:
    low, high = 1, max_len
    while low < high:
        middle = (low + high) // 2
        if spike_of(middle)[0] > reserve_bytes:
            high = middle
        else:
            low = middle + 1
    return low
