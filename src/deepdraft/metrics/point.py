"""The points of a sweep: everything measured at one context length and one concurrency, brought together.

A sample is one request (one pair with the two-point method) at every concurrency; throughput and concurrency have one
sample a trial. Warm-ups, failed requests, refused pairs and requests of superseded tries take no part in any figure,
and each is counted. No figure mixes per-request means with token-weighted ones: summaries are over samples, and
`pooled_tpot_s` is the token-weighted mean under its own name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepdraft.metrics.attempt import TrialRequests, trial_requests_of
from deepdraft.metrics.concurrency import (
    intervals_s,
    mean_concurrency,
    output_tok_s,
    peak_concurrency,
    total_tok_s,
)
from deepdraft.metrics.figure import FIGURE_NAMES, PERCENTILE_FIGURES, PERCENTILES, Figure
from deepdraft.metrics.reported import reported_asked_len, reported_context, reported_figures
from deepdraft.metrics.sample import Sample, actual_prompt_len, pair_sample, request_sample
from deepdraft.metrics.speculation import STEP_FROM_TOKENS, Sourced, acceptance_len, tokens_per_step
from deepdraft.metrics.timing import num_decode_tokens
from deepdraft.metrics.tokens import output_tokens
from deepdraft.metrics.two_point import pairs_of, refusal
from deepdraft.records import Acceptance, Measurement, Reported, Run, Ternary
from deepdraft.stats import Summary, median, percentile, percentile_bound, summary, weighted_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedPair:
    """A two-point pair that gives no figures."""

    trial_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentile:
    """A percentile over requests, or what can be said instead of it."""

    p: float
    value: float | None
    """None when there are too few samples."""
    bound: str | None
    """What the samples say instead; None when there are enough."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One context length at one concurrency."""

    asked_context_len: int
    concurrency: int
    context_len: int
    """The actual length: the median of the prompt tokens as counted by `context_len_source`."""
    context_len_source: str
    figures: Mapping[str, Figure]
    """By the names of the catalogue; a figure that can't be known is absent."""
    percentiles: Mapping[str, tuple[Percentile, ...]]
    """Over requests, for the latencies that are quoted so."""
    pooled_tpot_s: float | None
    """Token-weighted mean of `tpot_s`: total decode time / total decode tokens."""
    samples: tuple[Sample, ...]
    trials: tuple[TrialRequests, ...]
    """Without warm-up trials."""
    num_requests: int
    """Requests that count: succeeded, failed and refused, without warm-ups and superseded tries."""
    num_ok: int
    num_failed: int
    num_warmups: int
    num_superseded: int
    refused_pairs: tuple[RefusedPair, ...]
    failures: tuple[Measurement, ...]
    num_needles_found: int
    num_needles: int
    """Requests whose needle was looked for."""
    peak_concurrency: int | None
    """Exact, over all trials; None when no request ended."""
    reported: Reported | None = None
    """The point as its source gives it, where somebody else measured it; then there are no samples and no trials."""

    def summary(self, name: str) -> Summary | None:
        """The summary of a figure; None when it can't be known."""
        figure = self.figures.get(name)
        return figure.summary if figure is not None else None

    @property
    def num_samples(self) -> int:
        """Samples behind its figures: requests or pairs; for a reported point the values its source gives."""
        if self.reported is not None:
            return max((figure.summary.num_samples for figure in self.figures.values()), default=0)
        return len(self.samples)

    @property
    def key(self) -> tuple[int, int]:
        """What makes it this point: asked context length and concurrency."""
        return self.asked_context_len, self.concurrency


def points_of(run: Run) -> tuple[Point, ...]:
    """The points of a run, by context length and concurrency. A point all of whose requests failed is there too,
    without figures; a warm-up alone makes no point. Reported points follow the measured ones, one for each line."""
    groups: dict[tuple[int, int], list[TrialRequests]] = defaultdict(list)
    warmups: dict[tuple[int, int], int] = defaultdict(int)
    for trial in trial_requests_of(run):
        key = trial.context_len, trial.concurrency
        warmups[key] += sum(1 for request in trial.requests if trial.is_warmup or request.is_warmup)
        if not trial.is_warmup:
            groups[key].append(trial)
    measured = [_point(run, key, groups[key], warmups[key]) for key in sorted(groups)]
    reported = sorted((_reported_point(line) for line in run.reported), key=lambda point: point.key)
    return (*measured, *reported)


def _reported_point(line: Reported) -> Point:
    context_len, context_len_source = reported_context(line)
    return Point(
        asked_context_len=reported_asked_len(line),
        concurrency=line.concurrency,
        context_len=context_len,
        context_len_source=context_len_source,
        figures=reported_figures(line),
        percentiles={},
        pooled_tpot_s=None,
        samples=(),
        trials=(),
        num_requests=0,
        num_ok=0,
        num_failed=0,
        num_warmups=0,
        num_superseded=0,
        refused_pairs=(),
        failures=(),
        num_needles_found=0,
        num_needles=0,
        peak_concurrency=None,
        reported=line,
    )


def _point(run: Run, key: tuple[int, int], trials: list[TrialRequests], num_warmups: int) -> Point:
    speculation = run.header.capabilities.speculation
    by_trial: list[tuple[TrialRequests, list[Sample]]] = []
    refused: list[RefusedPair] = []
    num_refused_requests = 0
    for trial in trials:
        trial_samples, trial_refused, num_dropped = _samples(trial, speculation)
        by_trial.append((trial, trial_samples))
        refused += trial_refused
        num_refused_requests += num_dropped
    samples = [sample for _, trial_samples in by_trial for sample in trial_samples]
    requests = [request for trial in trials for request in trial.requests if not request.is_warmup]
    failures = tuple(request for request in requests if request.failure is not None)
    ok = [request for trial in trials for request in trial.measured]
    context_len, context_len_source = _context_len(ok, key[0])
    needles = [request.needle_found for request in ok if request.needle_found is not None]
    intervals = [interval for trial in trials for interval in intervals_s(trial.requests)]
    return Point(
        asked_context_len=key[0],
        concurrency=key[1],
        context_len=context_len,
        context_len_source=context_len_source,
        figures=_figures(by_trial),
        percentiles=_percentiles(samples),
        pooled_tpot_s=_pooled_tpot(samples),
        samples=tuple(samples),
        trials=tuple(trials),
        num_requests=len(requests),
        num_ok=len(ok) - num_refused_requests,
        num_failed=len(failures),
        num_warmups=num_warmups,
        num_superseded=sum(len(trial.superseded) for trial in trials),
        refused_pairs=tuple(refused),
        failures=failures,
        num_needles_found=sum(needles),
        num_needles=len(needles),
        peak_concurrency=peak_concurrency(intervals) if intervals else None,
    )


def _samples(trial: TrialRequests, speculation: Ternary) -> tuple[list[Sample], list[RefusedPair], int]:
    """The samples of a trial, its refused pairs, and how many succeeded requests gave no sample by that."""
    repeat_index = trial.trial.repeat_index if trial.trial is not None else None
    samples = [
        request_sample(
            request,
            acceptance=request_acceptance(trial, request),
            speculation=speculation,
            repeat_index=repeat_index,
        )
        for request in trial.measured
        if request.role == "single"
    ]
    refused: list[RefusedPair] = []
    num_dropped = 0
    pairs, alone = pairs_of(tuple(request for request in trial.requests if not request.is_warmup))
    for pair in pairs:
        reason = refusal(pair)
        if reason is None:
            acceptance = request_acceptance(trial, pair.second)
            samples.append(
                pair_sample(pair, acceptance=acceptance, speculation=speculation, repeat_index=repeat_index)
            )
        else:
            refused.append(RefusedPair(trial_id=trial.trial_id, reason=reason))
            num_dropped += sum(1 for request in (pair.first, pair.second) if request.failure is None)
    for request in alone:
        if request.failure is None:
            refused.append(RefusedPair(trial_id=trial.trial_id, reason="the other request of the pair is missing"))
            num_dropped += 1
    return samples, refused, num_dropped


def request_acceptance(trial: TrialRequests, request: Measurement) -> Acceptance | None:
    """The best acceptance counts for one request: its own, else the trial's where it was the trial's only request."""
    if request.acceptance is not None:
        return request.acceptance
    if trial.trial is not None and sum(1 for other in trial.requests if other.role != "first") == 1:
        return trial.trial.acceptance
    return None


def _context_len(ok: Sequence[Measurement], asked_len: int) -> tuple[int, str]:
    if not ok:
        return asked_len, "as asked, nothing was measured"
    counted = [actual_prompt_len(request) for request in ok]
    sources = dict.fromkeys(source for _, source in counted)
    return round(median([length for length, _ in counted])), ", ".join(sources)


def _figures(by_trial: list[tuple[TrialRequests, list[Sample]]]) -> dict[str, Figure]:
    values: dict[str, list[float]] = defaultdict(list)
    sources: dict[str, dict[str, None]] = defaultdict(dict)
    for trial, samples in by_trial:
        told = _trial_figures(trial, samples)
        for sample in samples:
            for name, value in sample.figures.items():
                if name not in told:  # what the server tells of the whole trial outweighs what arrivals suggest
                    values[name].append(value)
                    if name in sample.sources:
                        sources[name][sample.sources[name]] = None
        for name, sourced in told.items():
            values[name].append(sourced.value)
            if sourced.source:
                sources[name][sourced.source] = None
    figures: dict[str, Figure] = {}
    for name in FIGURE_NAMES:
        brief = summary(values.get(name, []))
        if brief is not None:
            figures[name] = Figure(summary=brief, sources=tuple(sources.get(name, {})))
    return figures


def _trial_figures(trial: TrialRequests, samples: list[Sample]) -> dict[str, Sourced]:
    """Figures with one sample a trial: throughput, and what counters around the whole trial say of speculation."""
    ok = trial.measured
    figures: dict[str, Sourced] = {}
    if any(request.role != "single" for request in ok):
        return figures  # the pairs of the two-point method are no workload
    for name, value in (
        ("output_tok_s", output_tok_s(ok)),
        ("total_tok_s", total_tok_s(ok)),
        ("mean_concurrency", mean_concurrency(intervals_s(trial.requests))),
    ):
        if value is not None:
            figures[name] = Sourced(value=value, source="")
    acceptance = trial.trial.acceptance if trial.trial is not None else None
    if acceptance is None or any("acceptance_len" in sample.figures for sample in samples):
        return figures
    outputs = [output_tokens(request.trace) for request in ok]
    known = [count for count in outputs if count is not None]
    # The formula takes off the one token of one prefill; here each request has one.
    total = sum(known) - len(known) + 1 if known and len(known) == len(outputs) else None
    length = acceptance_len(acceptance, total)
    if length is not None:
        figures["acceptance_len"] = length
    per_step = tokens_per_step(acceptance, sum(known), len(known)) if total is not None else None
    tpots = [sample.figures["tpot_s"] for sample in samples if "tpot_s" in sample.figures]
    if per_step is not None:
        figures["tokens_per_step"] = per_step
        if tpots:
            figures["step_s"] = Sourced(value=median(tpots) * per_step.value, source=STEP_FROM_TOKENS)
    return figures


def _percentiles(samples: list[Sample]) -> dict[str, tuple[Percentile, ...]]:
    return {
        name: tuple(
            Percentile(p=p, value=percentile(values, p), bound=percentile_bound(values, p)) for p in PERCENTILES
        )
        for name in PERCENTILE_FIGURES
        if (values := [sample.figures[name] for sample in samples if name in sample.figures])
    }


def _pooled_tpot(samples: list[Sample]) -> float | None:
    timed = [
        (sample.figures["tpot_s"], _num_timed_tokens(sample)) for sample in samples if "tpot_s" in sample.figures
    ]
    return weighted_mean([tpot for tpot, _ in timed], [num_tokens for _, num_tokens in timed])


def _num_timed_tokens(sample: Sample) -> int:
    if sample.first is None:
        return num_decode_tokens(sample.request.trace) or 0
    return (output_tokens(sample.request.trace) or 0) - (output_tokens(sample.first.trace) or 0)
