"""Guard: no prompt was served from a prefix cache.

What it sees: cached tokens in each answer; else the server's counters around the trial: of cached tokens, or of
prompt tokens it computed (what was sent and not computed was cached).
Why it matters: a hit skips prefill; TTFT then measures the cache (18 times too good in three of six popular clients).
Violated when a request had more cached tokens than the template that all prompts share. Verified when none had, or
when the server has no prefix cache. What was done against hits (unique head, flush, salt) is told but proves nothing,
and a flush that was refused even less.
When it is wrong: a server that reports 0 while it reuses. Where prompts were sent again on purpose, a TTFT below half
of the others' then speaks against its word: not verifiable. A slow first request alone is never called a hit: it may
be a warm-up effect.
"""

from __future__ import annotations

from deepdraft.guards.guard import PREFILL_FIGURES, GuardReport, PointEvidence, share_text
from deepdraft.metrics import TrialRequests, cached_tokens, prompt_tokens
from deepdraft.metrics.sample import actual_prompt_len
from deepdraft.metrics.two_point import UNKNOWN_TEMPLATE_LEN, allowed_cached_len
from deepdraft.records import Measurement
from deepdraft.stats import median

NAME = "cold_prefix"
_SUSPECT_FRAC = 0.5
"""A TTFT below this share of the others' is worth a word when nothing else can tell."""


def cold_prefix(evidence: PointEvidence) -> GuardReport:
    """The verdict for one point."""
    requests = evidence.requests
    if not requests:
        return GuardReport(name=NAME, state="not_verifiable", evidence="nothing was measured")
    counts = [cached_tokens(request.trace) for request in requests]
    hits = _hits(requests, counts)
    if hits:
        return _violated(_hit_text(hits, len(requests)))
    if all(count is not None for count in counts):
        most = max(count for count in counts if count is not None)
        detail = "0 cached tokens" if not most else f"at most {most:,} cached tokens, the template all prompts share,"
        return _believed(evidence, f"{detail} in each of {len(requests)} answers")
    from_counters = _by_counters(evidence)
    if from_counters is not None:
        return from_counters
    if evidence.capabilities.prefix_cache == "no":
        return GuardReport(name=NAME, state="verified", evidence="the server keeps no prefix cache")
    known = sum(1 for count in counts if count is not None)
    told = "the server tells no cached tokens" if not known else f"only {known} of {len(counts)} answers tell them"
    return _not_verifiable("; ".join([told, *_steps(evidence), *_suspicion(evidence)]))


def _believed(evidence: PointEvidence, text: str) -> GuardReport:
    """The server says that nothing was cached. That is believed, unless the prompt was there before and a TTFT looks
    like a hit."""
    suspicion = _suspicion(evidence) if evidence.spec.keep_cache else []
    if suspicion:
        return _not_verifiable(f"the server says {text}, but prompts were sent again, and {suspicion[0]}")
    return GuardReport(name=NAME, state="verified", evidence=text)


def _violated(text: str) -> GuardReport:
    return GuardReport(name=NAME, state="violated", evidence=text, doubts=PREFILL_FIGURES)


def _not_verifiable(text: str) -> GuardReport:
    return GuardReport(name=NAME, state="not_verifiable", evidence=text, doubts=PREFILL_FIGURES)


def _hits(requests: tuple[Measurement, ...], counts: list[int | None]) -> list[tuple[Measurement, int]]:
    known = [count for count in counts if count is not None]
    # Without a known template length: the same small count for all is a template, as long as it is small.
    shared = known[0] if known and len(set(known)) == 1 and 1 < len(known) == len(counts) else 0
    hits = []
    for request, count in zip(requests, counts, strict=True):
        if count is None or count <= allowed_cached_len(request.prompt):
            continue
        if request.prompt.overhead_len is None and count == shared <= UNKNOWN_TEMPLATE_LEN:
            continue
        hits.append((request, count))
    return hits


def _hit_text(hits: list[tuple[Measurement, int]], num_requests: int) -> str:
    request, most = max(hits, key=lambda hit: hit[1])
    total = prompt_tokens(request.trace)
    whole = f" of {total:,} prompt tokens ({share_text(most, total)})" if total else " prompt tokens"
    return f"{len(hits)} of {num_requests} requests were served from a cache: up to {most:,}{whole}"


def _by_counters(evidence: PointEvidence) -> GuardReport | None:
    """The verdict of the counters around each trial; None when a trial has none."""
    trials = [trial for trial in evidence.point.trials if trial.measured]
    num_cached = num_prompt = 0
    has_probes = False
    allowed = 0
    for trial in trials:
        delta = _cached_delta(trial)
        if delta is None:
            return None
        num_cached += delta
        num_prompt += sum(actual_prompt_len(request)[0] for request in trial.requests)
        allowed += sum(allowed_cached_len(request.prompt) for request in trial.requests)
        has_probes = has_probes or bool(trial.trial and trial.trial.num_probe_requests)
    if all(_rise(trial, "cached_tokens") is not None for trial in trials):
        told = f"the server's counter of cached tokens rose by {num_cached:,}"
    else:
        told = f"the server computed all but {num_cached:,} prompt tokens by its own count"
    text = f"{told} over {len(evidence.requests)} requests"
    if num_cached <= allowed:
        return _believed(evidence, text)
    if has_probes:
        return _not_verifiable(f"{text}, which may be our own probes; its answers tell no cached tokens")
    return _violated(f"{text} ({share_text(num_cached, num_prompt)} of their prompts)")


def _cached_delta(trial: TrialRequests) -> int | None:
    cached = _rise(trial, "cached_tokens")
    if cached is not None:
        return cached
    computed = _rise(trial, "uncached_prompt_tokens")
    if computed is None:
        return None
    # What was not computed was cached. More computed than sent is other clients' work, and then it tells nothing.
    missing = sum(actual_prompt_len(request)[0] for request in trial.requests) - computed
    return missing if missing >= 0 else None


def _rise(trial: TrialRequests, name: str) -> int | None:
    if trial.trial is None or trial.trial.before is None or trial.trial.after is None:
        return None
    before, after = trial.trial.before.counters.get(name), trial.trial.after.counters.get(name)
    # A counter that fell was reset in between: it tells nothing.
    return None if before is None or after is None or after < before else round(after - before)


def _steps(evidence: PointEvidence) -> list[str]:
    done: dict[str, None] = {}
    refused: dict[str, None] = {}
    for trial in evidence.point.trials:
        for step in trial.trial.cold_steps if trial.trial is not None else ():
            if step.is_done:
                done[step.means] = None
            else:
                refused[f"{step.means} ({step.evidence})"] = None
    parts = []
    if done:
        parts.append(f"done against hits: {', '.join(done)}")
    if refused:
        parts.append(f"not done: {', '.join(refused)}")
    return parts


def _suspicion(evidence: PointEvidence) -> list[str]:
    ttfts = [sample.figures["ttft_s"] for sample in evidence.point.samples if "ttft_s" in sample.figures]
    if len(ttfts) < 2 or min(ttfts) <= 0:
        return []
    factor = max(ttfts) / min(ttfts)
    if all(ttft < _SUSPECT_FRAC * ttfts[0] for ttft in ttfts[1:]):
        return [f"the first TTFT is {factor:.1f} times the later ones: a warm-up effect, or hits after it"]
    others = [median([*ttfts[:place], *ttfts[place + 1 :]]) for place in range(len(ttfts))]
    if any(ttft < _SUSPECT_FRAC * other for ttft, other in zip(ttfts, others, strict=True)):
        return [f"one TTFT is {factor:.1f} times shorter than another, as a hit would make it"]
    return []
