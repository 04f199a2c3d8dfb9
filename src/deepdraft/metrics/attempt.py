"""Which requests of a results file count: those of each trial's last try.

A sweep that was interrupted inside a trial runs that trial again when it resumes, so the file then holds requests of
the cut-short try before those of the complete one. They must not count twice. A retry inside one try is different:
the failed attempt stays a failure of that try.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from deepdraft.metrics.concurrency import intervals_s, peak_concurrency
from deepdraft.records import Measurement, Run, Trial

_CLOCK_SLACK_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRequests:
    """One repeat of one point with the requests that count."""

    trial_id: str
    context_len: int
    """As asked."""
    concurrency: int
    is_warmup: bool
    trial: Trial | None
    """None when the trial was cut short: what surrounds its requests is then unknown."""
    requests: tuple[Measurement, ...]
    """In the order they were written; failures included."""
    superseded: tuple[Measurement, ...] = ()
    """Requests of earlier, cut-short tries."""

    @property
    def started_at_s(self) -> float:
        """When the trial began, in seconds since the sweep began."""
        if self.trial is not None:
            return self.trial.started_at_s
        return min((request.started_at_s for request in self.requests), default=0.0)

    @property
    def measured(self) -> tuple[Measurement, ...]:
        """The requests that succeeded and are no warm-ups."""
        return tuple(request for request in self.requests if request.failure is None and not request.is_warmup)


def trial_requests_of(run: Run) -> tuple[TrialRequests, ...]:
    """The trials of a run in the order they began, each with the requests of its last try."""
    written: dict[str, list[Measurement]] = defaultdict(list)
    for measurement in run.measurements:
        written[measurement.trial_id].append(measurement)
    trials = {trial.trial_id: trial for trial in run.trials}  # the last line of a trial wins
    groups = [
        _group(run, trial_id, trials.get(trial_id), written.get(trial_id, []))
        for trial_id in dict.fromkeys([*written, *trials])
    ]
    return tuple(sorted(groups, key=lambda group: group.started_at_s))


def _group(run: Run, trial_id: str, trial: Trial | None, written: list[Measurement]) -> TrialRequests:
    requests = _last_try(written, trial)
    kept = {id(request) for request in requests}
    if trial is not None:
        context_len, concurrency = trial.context_len, trial.concurrency
    else:
        context_len, concurrency = requests[0].prompt.asked_len, _concurrency(run, requests)
    return TrialRequests(
        trial_id=trial_id,
        context_len=context_len,
        concurrency=concurrency,
        is_warmup=trial.is_warmup if trial is not None else all(request.is_warmup for request in requests),
        trial=trial,
        requests=tuple(requests),
        superseded=tuple(request for request in written if id(request) not in kept),
    )


def _last_try(written: list[Measurement], trial: Trial | None) -> list[Measurement]:
    if trial is not None:
        began_s, ended_s = trial.started_at_s - _CLOCK_SLACK_S, trial.ended_at_s + _CLOCK_SLACK_S
        inside = [request for request in written if began_s <= request.started_at_s <= ended_s]
        written = inside or written
    # Attempts of one request count up within a try; one that does not begins another try.
    last: dict[tuple[str, int], list[Measurement]] = {}
    for request in written:
        attempts = last.setdefault((request.role, request.request_index), [])
        if attempts and request.attempt <= attempts[-1].attempt:
            attempts.clear()
        attempts.append(request)
    kept = {id(request) for attempts in last.values() for request in attempts}
    return [request for request in written if id(request) in kept]


def _concurrency(run: Run, requests: list[Measurement]) -> int:
    """The concurrency of a trial that was cut short: the smallest of the sweep's that its requests fit into."""
    asked = sorted(run.header.spec.concurrencies) or [1]
    peak = peak_concurrency(intervals_s(requests))
    return next((concurrency for concurrency in asked if concurrency >= peak), asked[-1])
