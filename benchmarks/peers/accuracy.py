"""Part `errors`: what each client reports beside what was true, for streams that real servers send."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepdraft.simulate.process import RunningServer, running

from .client import Client, Deepdraft, Task
from .scenario import ERROR_IN_STREAM, PREFIX_CACHE, TIMING, Scenario
from .trial import NothingSent, Trial, empty_folder, measured

MAX_TTFT_ERROR_S = 0.003
MAX_TPOT_ERROR_FRAC = 0.01
"""The targets: beyond them a figure counts as wrong."""


@dataclass(frozen=True, kw_only=True)
class Rerun:
    """The same command twice on a server with a prefix cache."""

    first: Trial
    second: Trial


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Everything of one client. A str in place of a trial: why there is none."""

    timing: Mapping[str, Trial | str]
    """By the scenario's name."""
    faults: Trial | str
    rerun: Rerun | str


def ttft_error_s(trial: Trial) -> float | None:
    """Reported minus true, of the medians; None when one of them is missing."""
    if trial.reported is None or trial.reported.ttft is None or trial.ttft is None:
        return None
    return trial.reported.ttft.median_s - trial.ttft.median_s


def tpot_error_frac(trial: Trial) -> float | None:
    """(Reported minus true) / true, of the medians; None when one of them is missing."""
    if trial.reported is None or trial.reported.tpot is None or trial.tpot is None:
        return None
    return trial.reported.tpot.median_s / trial.tpot.median_s - 1


def cold_ttft_s(trial: Trial) -> float:
    """TTFT of the trial's own prompts on the server of PREFIX_CACHE with nothing cached: the mean, by its physics."""
    physics = PREFIX_CACHE.spec.physics
    return statistics.fmean(
        physics.prefill_a_s + physics.prefill_b_s * (each.prompt_len or 0) for each in trial.truths
    )


def accuracies(clients: Sequence[Client]) -> Mapping[str, Accuracy]:
    """Run everything, each client in turn on each server."""
    timing: dict[str, dict[str, Trial | str]] = {client.name: {} for client in clients}
    for scenario in TIMING:
        with running(scenario.spec) as server:
            for client in clients:
                timing[client.name][scenario.name] = _trial(client, server, scenario)
    faults: dict[str, Trial | str] = {}
    for client in clients:  # a server each: which requests fail is counted from its start
        with running(ERROR_IN_STREAM.spec) as server:
            faults[client.name] = _trial(client, server, ERROR_IN_STREAM)
    reruns: dict[str, Rerun | str] = {client.name: _rerun(client) for client in clients}
    return {
        client.name: Accuracy(timing=timing[client.name], faults=faults[client.name], rerun=reruns[client.name])
        for client in clients
    }


def kept_cache() -> Rerun | str:
    """Ours told to leave the cache alone and send the same prompts: the guard has to speak."""
    return _rerun(Deepdraft(name="deepdraft sweep --keep-cache", keeps_cache=True))


def _rerun(client: Client) -> Rerun | str:
    with running(PREFIX_CACHE.spec) as server:
        first = _trial(client, server, PREFIX_CACHE, uses_defaults=True)
        second = _trial(client, server, PREFIX_CACHE, uses_defaults=True)
    if isinstance(first, str):
        return first
    return second if isinstance(second, str) else Rerun(first=first, second=second)


def _trial(client: Client, server: RunningServer, scenario: Scenario, *, uses_defaults: bool = False) -> Trial | str:
    print(f"{scenario.name}: {client.name}", file=sys.stderr)
    with empty_folder() as folder:
        task = Task(
            url=server.url,
            context_len=scenario.context_len,
            decode_len=scenario.decode_len,
            concurrency=1,
            num_requests=scenario.num_requests,
            folder=folder,
            uses_defaults=uses_defaults,
        )
        try:
            return measured(client, server, task)
        except NothingSent as nothing:
            return str(nothing)
