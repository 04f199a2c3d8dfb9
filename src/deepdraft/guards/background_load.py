"""Guard: nobody else used the server meanwhile.

What it sees: running and waiting requests before, during and after each trial, and how far the server's counters
moved. Why it matters: another user's prefill in the middle of a decode doubles its step time.
Verified when the counters moved by exactly what we sent, or when looks during the trial show none but ours. Violated
when requests run before we start, when more run than we sent, or when the counters moved by more than ours.
Not verifiable without readings, or when the counters lag.
When it is wrong: a gauge that lags behind a request of our own; health checks of a load balancer that count as
requests.
"""

from __future__ import annotations

from deepdraft.guards.guard import (
    DECODE_FIGURES,
    PREFILL_FIGURES,
    THROUGHPUT_FIGURES,
    GuardReport,
    PointEvidence,
    State,
    worst_of,
)
from deepdraft.metrics import (
    TrialRequests,
    cached_tokens,
    intervals_s,
    output_tokens,
    peak_concurrency,
    prompt_tokens,
)
from deepdraft.records import Measurement, ServerReading, Trial

NAME = "background_load"
_DOUBTS = (*PREFILL_FIGURES, *DECODE_FIGURES, *THROUGHPUT_FIGURES)
_SLACK_TOKENS = 2
"""Tokens a request may be off in a counter: some engines leave out the first or the last."""
_PROBE_TOKENS = 16
"""What a probe or a health check of our own may generate."""

_Finding = tuple[State, str]


def background_load(evidence: PointEvidence) -> GuardReport:
    """The verdict for one point: the worst over its trials."""
    findings = [_finding(trial) for trial in evidence.point.trials if trial.requests]
    if not findings:
        return GuardReport(name=NAME, state="not_verifiable", evidence="nothing was measured")
    worst = worst_of(state for state, _ in findings)
    texts = [text for state, text in findings if state == worst]
    text = texts[0]
    if len(texts) < len(findings) and worst != "verified":
        text += f" ({len(texts)} of {len(findings)} repeats)"
    return GuardReport(name=NAME, state=worst, evidence=text, doubts=_DOUBTS if worst == "violated" else ())


def _finding(group: TrialRequests) -> _Finding:
    trial = group.trial
    if trial is None:
        return "not_verifiable", "the trial was cut short, nothing is known of the server's load"
    if trial.before is None and trial.after is None and not trial.during:
        return "not_verifiable", "the server tells neither its load nor its counters"
    state, text = _by_counters(trial, group.requests)
    if state == "violated":
        return state, text
    own = max(trial.concurrency, peak_concurrency(intervals_s(group.requests)))
    looks = [load for look in trial.during if (load := _load(look)) is not None]
    if looks and max(looks) > own:
        return "violated", f"{max(looks)} requests ran or waited at once, of which {own} ours"
    is_exact = state == "verified"
    for load, when in ((_load(trial.before), "before ours were sent"), (_load(trial.after), "when ours had ended")):
        # A gauge may lag behind our own last request; counters that moved by ours alone show that it does.
        if load and not (is_exact and looks):
            return "violated", f"{load} requests of others ran or waited {when}"
    if is_exact:
        return "verified", text
    if looks:
        return "verified", f"never more than our own requests ran, at {len(looks)} looks"
    return "not_verifiable", text or "idle before and after; nothing shows what ran in between"


def _load(reading: ServerReading | None) -> int | None:
    if reading is None or (reading.num_running is None and reading.num_waiting is None):
        return None
    return (reading.num_running or 0) + (reading.num_waiting or 0)


def _by_counters(trial: Trial, requests: tuple[Measurement, ...]) -> tuple[State | None, str]:
    """The verdict of the counters; None with a reason when they can't tell."""
    before, after = trial.before, trial.after
    if before is None or after is None:
        return None, ""
    exact: list[str] = []
    for counter, name in (
        ("num_requests", "requests"),
        ("prompt_tokens", "prompt tokens"),
        ("generation_tokens", "output tokens"),
    ):
        if counter not in before.counters or counter not in after.counters:
            continue
        moved = round(after.counters[counter] - before.counters[counter])
        bounds = _own_range(counter, requests, trial.num_probe_requests)
        if moved < 0:
            return None, "a counter was reset meanwhile"
        if bounds is None:
            continue
        low, high = bounds
        if moved > high:
            return "violated", f"the server counted {moved:,} {name}, of which at most {high:,} ours"
        if moved < low:
            return None, f"the server's counters lag: {moved:,} {name} of our {low:,}"
        exact.append(f"{moved:,} {name}")
    if not exact:
        return None, ""
    return "verified", f"the server's counters moved by {', '.join(exact)}: ours alone"


def _own_range(counter: str, requests: tuple[Measurement, ...], num_probes: int) -> tuple[int, int] | None:
    """How far our own requests and probes move a counter: at least and at most. None when that is unknown.

    Some engines count cached prompt tokens, some leave them out; failed requests may have been counted or not.
    """
    failed = [request for request in requests if request.failure is not None]
    ok = [request for request in requests if request.failure is None]
    if counter == "num_requests":
        return len(ok), len(requests) + num_probes
    slack = _SLACK_TOKENS * len(requests)
    if counter == "prompt_tokens":
        prompts = [prompt_tokens(request.trace) for request in ok]
        if any(count is None for count in prompts):
            return None
        total = sum(count for count in prompts if count is not None)
        cached = sum(cached_tokens(request.trace) or 0 for request in ok)
        longest = max((request.prompt.asked_len for request in requests), default=0)
        extra = num_probes * longest + sum(request.prompt.asked_len for request in failed)
        return total - cached - slack, total + slack + extra
    outputs = [output_tokens(request.trace) for request in ok]
    if any(count is None for count in outputs):
        return None
    total = sum(count for count in outputs if count is not None)
    extra = num_probes * _PROBE_TOKENS + sum(request.max_tokens for request in failed)
    return total - slack, total + slack + extra
