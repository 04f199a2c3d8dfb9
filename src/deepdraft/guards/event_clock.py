"""Guard: the events came when the tokens were made, as far as arrival times can show.

What it sees: the stamps of each stream. Why it matters: behind a proxy that buffers, the first token comes with the
last and TTFT is the whole latency; a decode rate of a million tokens a second then looks like a fast server.
Violated when stamps run backwards, when a token comes before its request was sent in full, when a whole answer
arrives in one read, when arrivals bring clearly more tokens than the engine's steps commit, or when stalls (a gap
above ten typical ones) take more than a tenth of the decode time. Smaller stalls are named.
Not verifiable when every arrival brings the same number of tokens and the engine does not tell what it commits.
When it is wrong: an answer of very few tokens, which may well arrive at once (fewer than 4 are not judged).
"""

from __future__ import annotations

from itertools import pairwise

from deepdraft.guards.guard import DECODE_FIGURES, PREFILL_FIGURES, GuardReport, PointEvidence
from deepdraft.metrics import (
    TrialRequests,
    event_times_s,
    event_tokens,
    output_tokens,
    request_acceptance,
    steps_of,
    token_times_s,
    tokens_per_step,
    tpot_s,
)
from deepdraft.metrics.burst import bursts_of
from deepdraft.metrics.timing import arrival_tokens
from deepdraft.records import Measurement, RequestTrace
from deepdraft.stats import median
from deepdraft.units import seconds_text

NAME = "event_clock"
MIN_TOKENS = 4
"""Answers shorter than this are not judged by their arrivals."""
MIN_ARRIVALS = 2
"""Fewer whole arrivals after the first than these show no gathering."""
FASTEST_TPOT_S = 1e-4
"""No engine decodes one stream at 10,000 tokens a second; a buffer that empties does."""
STALL_FACTOR = 10
MAX_STALL_FRAC = 0.10
_SLACK_S = 0.01
"""Stamps of different kinds are rounded apart; only clear contradictions count."""
COALESCED_FACTOR = 1.5
"""Arrivals that bring this many times what a step commits were gathered on the way."""

_Fault = tuple[str, tuple[str, ...]]


def event_clock(evidence: PointEvidence) -> GuardReport:
    """The verdict for one point."""
    requests = evidence.requests
    if not requests:
        return GuardReport(name=NAME, state="not_verifiable", evidence="nothing was measured")
    faults = [
        fault
        for trial in evidence.point.trials
        for request in trial.measured
        if (fault := _fault(request, _committed(evidence, trial, request))) is not None
    ]
    if faults:
        doubts = dict.fromkeys(name for _, names in faults for name in names)
        text = f"{faults[0][0]} ({len(faults)} of {len(requests)} requests)"
        return GuardReport(name=NAME, state="violated", evidence=text, doubts=tuple(doubts))
    if not any(token_times_s(request.trace) for request in requests):
        return GuardReport(
            name=NAME,
            state="not_verifiable",
            evidence="no event with tokens",
            doubts=(*PREFILL_FIGURES, *DECODE_FIGURES),
        )
    unexplained = [
        (steps.doubt, _gathered_doubts(request.trace))
        for trial in evidence.point.trials
        for request in trial.measured
        if _committed(evidence, trial, request) is None
        and (steps := steps_of(request.trace)) is not None
        and steps.has_equal_bursts
    ]
    if unexplained:
        text = (
            f"{unexplained[0][0]}, or from something that gathers tokens on the way; nothing tells these from steps"
        )
        doubts = dict.fromkeys(name for _, names in unexplained for name in names)
        return GuardReport(name=NAME, state="not_verifiable", evidence=text, doubts=tuple(doubts))
    stalls = [stall for request in requests if (stall := _stalls(request.trace))]
    text = f"stamps rise and tokens come spread over time in {len(requests)} streams"
    if stalls:
        longest_s = max(gap for stall in stalls for gap in stall)
        text += f"; {sum(map(len, stalls))} stalls, the longest {seconds_text(longest_s)}"
    return GuardReport(name=NAME, state="verified", evidence=text)


def _committed(evidence: PointEvidence, trial: TrialRequests, request: Measurement) -> float | None:
    """Tokens the engine commits a step, by its own word; None where it tells nothing."""
    acceptance, num_tokens = request_acceptance(trial, request), output_tokens(request.trace)
    if acceptance is not None and num_tokens is not None:
        told = tokens_per_step(acceptance, num_tokens)
        if told is not None:
            return told.value
    return 1.0 if evidence.capabilities.speculation == "no" else None


def _fault(request: Measurement, committed: float | None) -> _Fault | None:
    trace = request.trace
    all_figures = (*PREFILL_FIGURES, *DECODE_FIGURES)
    if any(gap < 0 for gap in trace.events.gaps_us):
        return "the client's clock ran backwards", all_figures
    times_s = token_times_s(trace)
    if not times_s:
        return None
    if times_s[0] <= 0:
        return "the first token came before the request was sent", all_figures
    if trace.written_s is not None and times_s[0] < trace.written_s - _SLACK_S:
        return "the first token came before the request was sent in full", all_figures
    if trace.end_s is not None and event_times_s(trace)[-1] > trace.end_s + _SLACK_S:
        return "events are stamped after the end of the stream", all_figures
    return _at_once(trace, times_s) or _coalesced(trace, committed) or _stalled(trace)


def _at_once(trace: RequestTrace, times_s: tuple[float, ...]) -> _Fault | None:
    num_tokens = output_tokens(trace)
    num_tokens = num_tokens if num_tokens is not None else len(times_s)
    if num_tokens < MIN_TOKENS:
        return None
    all_figures = (*PREFILL_FIGURES, *DECODE_FIGURES)
    if times_s[-1] == times_s[0]:
        text = (
            f"all {num_tokens:,} tokens arrived at once: the server does not stream, or something on the way buffers"
        )
        return text, all_figures
    tpot = tpot_s(trace)
    if tpot is not None and tpot < FASTEST_TPOT_S:
        text = f"{num_tokens:,} tokens arrived within {seconds_text(times_s[-1] - times_s[0])}: a buffer that empties"
        return text, all_figures
    return None


def _coalesced(trace: RequestTrace, committed: float | None) -> _Fault | None:
    """More tokens an arrival than the engine commits a step, where that is known."""
    each = _tokens_per_arrival(trace)
    if committed is None or each is None or each <= COALESCED_FACTOR * committed:
        return None
    text = (
        f"arrivals bring {each:.1f} tokens, the engine commits {committed:.1f} a step: tokens are gathered on the way"
    )
    return text, _gathered_doubts(trace)


def _tokens_per_arrival(trace: RequestTrace) -> float | None:
    """The mean over the bursts; over a few arrivals without a rhythm the least, so that a hiccup is no gathering."""
    steps = steps_of(trace)
    if steps is not None:
        return steps.tokens_per_step
    bursts, counts = bursts_of(token_times_s(trace)), event_tokens(trace).counts
    whole = arrival_tokens(bursts, counts)[1:-1] if counts is not None else ()
    return min(whole) if len(whole) >= MIN_ARRIVALS else None


def _gathered_doubts(trace: RequestTrace) -> tuple[str, ...]:
    """What is off when tokens wait for others on their way: the steps, and TTFT when the first token had to wait as
    well. Time a token is not: it is a mean over all."""
    steps = ("itl_s", "tokens_per_step", "step_s")
    bursts, counts = bursts_of(token_times_s(trace)), event_tokens(trace).counts
    first = arrival_tokens(bursts, counts)[0] if counts else 0
    return ("ttft_s", "answer_ttft_s", "prefill_tok_s", *steps) if first > 1 else steps


def _stalls(trace: RequestTrace) -> list[float]:
    """Gaps above ten typical ones that brought no more tokens than usual: a long step that commits much is none."""
    bursts, counts = bursts_of(token_times_s(trace)), event_tokens(trace).counts
    gaps_s = [later - earlier for earlier, later in pairwise(bursts.ends_s)]
    if len(gaps_s) < MIN_TOKENS:
        return []
    tokens = arrival_tokens(bursts, counts)[1:] if counts is not None else (1,) * len(gaps_s)
    each_s = [gap / max(num_tokens, 1) for gap, num_tokens in zip(gaps_s, tokens, strict=True)]
    line_s, each_line_s = STALL_FACTOR * median(gaps_s), STALL_FACTOR * median(each_s)
    return [gap for gap, each in zip(gaps_s, each_s, strict=True) if gap > line_s and each > each_line_s]


def _stalled(trace: RequestTrace) -> _Fault | None:
    stalls = _stalls(trace)
    times_s = token_times_s(trace)
    span_s = times_s[-1] - times_s[0]
    if not stalls or sum(stalls) <= MAX_STALL_FRAC * span_s:
        return None
    text = f"stalls of up to {seconds_text(max(stalls))} take {100 * sum(stalls) / span_s:.0f} % of the decode time"
    return text, ("tpot_s", "decode_tok_s", "step_s")
