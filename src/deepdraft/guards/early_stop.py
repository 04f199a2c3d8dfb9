"""Guard: every answer is as long as was asked.

What it sees: output tokens against the limit sent, and the finish reason. Why it matters: an answer that ends after
20 of 128 tokens has a decode rate that rests on 19, and is cheaper than what it is compared with.
Violated when an answer is shorter; the evidence says on how many tokens the decode figures rest.
When it is wrong: a server that counts neither the end token nor what it filtered out.
"""

from __future__ import annotations

from deepdraft.guards.guard import DECODE_FIGURES, GuardReport, PointEvidence, range_text
from deepdraft.metrics import num_decode_tokens, output_tokens
from deepdraft.records import Measurement

NAME = "early_stop"
_DOUBTS = (*DECODE_FIGURES, "acceptance_len", "e2el_s", "output_tok_s", "total_tok_s")


def early_stop(evidence: PointEvidence) -> GuardReport:
    """The verdict for one point."""
    requests = evidence.requests
    if not requests:
        return GuardReport(name=NAME, state="not_verifiable", evidence="nothing was measured")
    short: list[tuple[int, Measurement]] = []
    unknown = 0
    for request in requests:
        length = output_tokens(request.trace)
        if length is not None and length < request.max_tokens:
            short.append((length, request))
        elif length is None and request.trace.finish_reason != "length":
            unknown += 1
    if short:
        length, worst = min(short, key=lambda pair: pair[0] / max(pair[1].max_tokens, 1))
        reason = f" (finish: {worst.trace.finish_reason})" if worst.trace.finish_reason else ""
        text = (
            f"{len(short)} of {len(requests)} ended early, the shortest at {length:,} of {worst.max_tokens:,}{reason}"
        )
        return GuardReport(name=NAME, state="violated", evidence=text + _basis(requests), doubts=_DOUBTS)
    if unknown:
        text = f'{unknown} of {len(requests)} answers have neither a token count nor the finish reason "length"'
        return GuardReport(name=NAME, state="not_verifiable", evidence=text, doubts=_DOUBTS)
    asked = range_text([request.max_tokens for request in requests])
    return GuardReport(
        name=NAME, state="verified", evidence=f"all {len(requests)} answers have the {asked} tokens asked"
    )


def _basis(requests: tuple[Measurement, ...]) -> str:
    counts = [count for request in requests if (count := num_decode_tokens(request.trace))]
    return f"; decode figures rest on {range_text(counts)} tokens a request" if counts else "; no decode figures"
