"""A server's own decode rate that has the prefill in it.

What it sees: the server's decode rate far below the client's, by just the time of the prefill: output tokens over
(TTFT + decode time).
Why it matters: SGLang's first "gen throughput" after a prefill divides by all the time since the last decode; a rate
over wall-clock does the same. It looks like a decode collapse with context.
Evidence needed: the server's rate, TTFT, time per token and the tokens of the answer.
Remedy: the client's time per token.
When it is wrong: a server that really stalls between prefill and decode for as long.
"""

from __future__ import annotations

from deepdraft.diagnosis.acceptance import decode_len
from deepdraft.diagnosis.case import Case
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.finding import Evidence, Finding
from deepdraft.diagnosis.number import plain

CODE = "D307"
NAME = "rate_includes_prefill"
FAR_BELOW = 0.7
MATCH_FRAC = 0.15


def find(case: Case) -> tuple[Finding, ...]:
    """One finding for the run: the point where the two are furthest apart."""
    bad = [(point, *rates) for point in case.points if (rates := _rates(case, point)) is not None]
    if not bad:
        return ()
    point, told, seen = max(bad, key=lambda each: each[2] / each[1])
    return (
        Finding(
            code=CODE,
            name=NAME,
            severity="warning",
            summary=f"At {point.name} the server's own decode rate is {plain(told, 3)} tok/s and the stream's "
            f"{plain(seen, 3)}: the server's has the prefill in it, and is no decode rate.",
            evidence=(
                Evidence(name="server_decode_tok_s", value=told, unit="tok/s", source="the server"),
                Evidence(name="decode_tok_s", value=seen, unit="tok/s", source="the stream"),
            ),
            remedy="Use the stream's rate; of the server's log the later decode lines only.",
        ),
    )


def _rates(case: Case, point: GuardedPoint) -> tuple[float, float] | None:
    told, seen, ttft = (point.median(name) for name in ("server_decode_tok_s", "decode_tok_s", "ttft_s"))
    length = decode_len(case, point)
    if told is None or seen is None or ttft is None or not length or told > FAR_BELOW * seen:
        return None
    whole = length / (ttft + length / seen)
    return (told, seen) if abs(told / whole - 1) <= MATCH_FRAC else None
