"""Less memory left than a prefill chunk needs.

What it sees: memory left on each device (--reserve) against the buffer of one prefill chunk: chunk x experts a token
x hidden x 2 bytes (the down-projection of a mixture of experts); and requests that failed for lack of memory.
Why it matters: the server starts, serves short prompts, and dies in a long prefill.
Evidence needed: the model, the chunk size, the memory left; or a failure that says so.
Remedy: a smaller chunk, a smaller pool.
When it is wrong: a kernel without that buffer. It is the largest known part of the spike, not all of it.
"""

from __future__ import annotations

import re

from deepdraft.cost.prefill_spike import expert_buffer_bytes
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import gib
from deepdraft.diagnosis.words import capital

CODE = "D402"
NAME = "reserve_below_prefill_spike"
HEADROOM = 3.0
"""The other parts of a spike (captured hidden states, activations, fragments) were seen to take twice the buffer."""
_CHUNK_SETTINGS = ("chunked_prefill_size", "max_num_batched_tokens")
_OUT_OF_MEMORY = re.compile(r"out of memory", re.IGNORECASE)


def find(case: Case) -> tuple[Finding, ...]:
    """What failed, else what is foreseen."""
    failed = [
        (point, failure.failure.message)
        for point in case.points
        for failure in point.point.failures
        if failure.failure is not None and _OUT_OF_MEMORY.search(failure.failure.message)
    ]
    if failed:
        point, message = failed[0]
        return (_finding(case, f"A request of {point.name} failed for lack of memory: {message}.", ()),)
    chunk, spike = _chunk(case), _spike_bytes(case)
    reserve = case.facts.reserve_bytes
    if chunk is None or spike is None or reserve is None or reserve >= HEADROOM * spike:
        return ()
    return (
        _finding(
            case,
            f"{gib(reserve)} are left on each device, and one prefill chunk of {chunk:,} tokens takes {gib(spike)} "
            f"for its experts' down-projection alone; all of a spike may be {HEADROOM:.0f} times that.",
            (
                Evidence(name="reserve_bytes", value=reserve, unit="B", source="given"),
                Evidence(
                    name="prefill_spike_bytes",
                    value=spike,
                    unit="B",
                    source="chunk x experts a token x hidden x 2 bytes",
                ),
            ),
        ),
    )


def _finding(case: Case, summary: str, evidence: tuple[Evidence, ...]) -> Finding:
    return Finding(
        code=CODE,
        name=NAME,
        severity="warning",
        summary=summary,
        evidence=evidence,
        remedy=f"{capital(case.say('chunk'))} (the buffer shrinks in proportion); {case.say('max_running')}; or "
        "leave more memory outside the pool.",
    )


def _chunk(case: Case) -> int | None:
    said = (case.settings.get(name) for name in _CHUNK_SETTINGS)
    return next((value for value in said if isinstance(value, int) and value > 0), None)


def _spike_bytes(case: Case) -> float | None:
    chunk = _chunk(case)
    if case.model is None or chunk is None or not case.model.num_experts_per_token:
        return None
    return float(
        expert_buffer_bytes(chunk, num_experts_per_token=case.model.num_experts_per_token, width=case.model.hidden)
    )
