"""Guard: the tokens in each event are known, so that time a token is divided by the right number.

What it sees: whether each event holds one token, or the server states how many. Why it matters: with 16 tokens in the
first event and counts unknown, peers are 13 to 16 % off. Violated when events hold several tokens and their split is
estimated (by a tokenizer or by characters); the evidence gives the range time a token can lie in. A range narrower
than 1 % counts as known. Not verifiable when nobody counts the tokens.
The two-point method needs no split: totals suffice.
When it is wrong: a total that equals the number of events by chance.
"""

from __future__ import annotations

from collections import Counter

from deepdraft.guards.guard import DECODE_FIGURES, GuardReport, PointEvidence
from deepdraft.metrics import EventTokens, event_tokens, tpot_bounds_s
from deepdraft.records import Measurement

NAME = "bundled_tokens"
_NARROW_FRAC = 0.01


def bundled_tokens(evidence: PointEvidence) -> GuardReport:
    """The verdict for one point."""
    requests = evidence.requests
    if not requests:
        return GuardReport(name=NAME, state="not_verifiable", evidence="nothing was measured")
    counted = [event_tokens(request.trace) for request in requests]
    mismatches = "".join(f"; {text}" for text in dict.fromkeys(one.mismatch for one in counted if one.mismatch))
    if all(request.role != "single" for request in requests):
        if any(not one.is_total_by_server for one in counted):
            text = "the server gives no token totals"
            return GuardReport(name=NAME, state="not_verifiable", evidence=text + mismatches, doubts=DECODE_FIGURES)
        text = "two-point: totals are enough, no event is divided"
        return GuardReport(name=NAME, state="verified", evidence=text + mismatches)
    uncounted = [one for one in counted if not one.is_total_by_server]
    if uncounted:
        by = uncounted[0].total_source
        text = "the server counts no output tokens" + (f"; counted with {by}" if by else "; nobody counts them")
        return GuardReport(name=NAME, state="not_verifiable", evidence=text + mismatches, doubts=DECODE_FIGURES)
    loose = [
        (request, one)
        for request, one in zip(requests, counted, strict=True)
        if not one.is_exact and not _narrow(request)
    ]
    if loose:
        return GuardReport(
            name=NAME, state="violated", evidence=_loose_text(loose) + mismatches, doubts=DECODE_FIGURES
        )
    return GuardReport(name=NAME, state="verified", evidence=_split_text(counted) + mismatches)


def _narrow(request: Measurement) -> bool:
    bounds = tpot_bounds_s(request.trace)
    return bounds is None or bounds[1] - bounds[0] <= _NARROW_FRAC * bounds[0]


def _loose_text(loose: list[tuple[Measurement, EventTokens]]) -> str:
    request, counted = loose[0]
    bounds = tpot_bounds_s(request.trace)
    num_events = len(counted.counts or ())
    text = f"{counted.total:,} tokens in {num_events:,} events, split by {counted.source}"
    if bounds is None:
        return text
    return f"{text}: time a token lies between {bounds[0] * 1e3:.3g} and {bounds[1] * 1e3:.3g} ms"


def _split_text(counted: list[EventTokens]) -> str:
    sizes = Counter(count for one in counted for count in one.counts or ())
    sources = ", ".join(dict.fromkeys(one.source for one in counted if one.source))
    if not sizes:
        return "no token events"
    if len(sizes) == 1:
        (size,) = sizes
        return f"{size} token{'s' if size != 1 else ''} in each event ({sources})"
    firsts = sorted({one.counts[0] for one in counted if one.counts})
    first = f", the first {'/'.join(map(str, firsts))}" if firsts else ""
    return f"{min(sizes)} to {max(sizes)} tokens an event{first} ({sources})"
