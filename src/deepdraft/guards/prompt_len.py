"""Guard: the prompt is as long as the point says, by the server's own count.

What it sees: prompt tokens in each answer. Why it matters: a label of 128k over 82,845 tokens is a figure at another
depth. Violated when a count differs from what was asked by more than 2. Not verifiable without counts.
When it is wrong: a server that counts other than it computes (images, or truncation after counting).
"""

from __future__ import annotations

from deepdraft.guards.guard import GuardReport, PointEvidence, range_text
from deepdraft.metrics import prompt_tokens

NAME = "prompt_len"
TOLERANCE = 2


def prompt_len(evidence: PointEvidence) -> GuardReport:
    """The verdict for one point."""
    requests = evidence.requests
    counts = [prompt_tokens(request.trace) for request in requests]
    known = [count for count in counts if count is not None]
    if not known or len(known) < len(counts):
        missing = "nothing was measured" if not requests else f"{len(counts) - len(known)} of {len(counts)} answers"
        text = missing if not requests else f"the server counts no prompt tokens in {missing}"
        return GuardReport(
            name=NAME,
            state="not_verifiable",
            evidence=text,
            doubts=("context_len", "prefill_tok_s") if requests else (),
        )
    off = [
        count - request.prompt.asked_len
        for request, count in zip(requests, known, strict=True)
        if abs(count - request.prompt.asked_len) > TOLERANCE
    ]
    asked = range_text([request.prompt.asked_len for request in requests])
    text = f"the server counts {range_text(known)} prompt tokens, asked {asked}"
    if off:
        return GuardReport(name=NAME, state="violated", evidence=text, doubts=("context_len",))
    return GuardReport(name=NAME, state="verified", evidence=text)
