"""Guard: the client itself kept up.

What it sees: how late the client's event loop ran while requests were in flight, and its share of a CPU.
Why it matters: a stamp taken late is a latency of the client, reported as the server's.
Violated when the loop was late by more than 1 % of TTFT and by more than what the client claims for itself (5 ms with
one stream, 20 ms when several start together), or when it used more than 90 % of a core, in at least half of the
repeats (in any, when there are fewer than three): a hiccup in one of three repeats can't move the median, and is
named. Not verifiable when no lag was recorded.
When it is wrong: lag at a moment when no event was due.
"""

from __future__ import annotations

from deepdraft.guards.guard import (
    DECODE_FIGURES,
    PREFILL_FIGURES,
    THROUGHPUT_FIGURES,
    GuardReport,
    PointEvidence,
)
from deepdraft.records import Trial
from deepdraft.units import seconds_text

NAME = "client_lag"
MIN_LAG_S = 5e-3
MIN_LAG_CONCURRENT_S = 20e-3
MAX_TTFT_FRAC = 0.01
MAX_CPU_FRAC = 0.90
_DOUBTS = (*PREFILL_FIGURES, *DECODE_FIGURES, *THROUGHPUT_FIGURES)


def client_lag(evidence: PointEvidence) -> GuardReport:
    """The verdict for one point."""
    trials = [trial.trial for trial in evidence.point.trials if trial.trial is not None]
    lags_s = [trial.loop_lag_max_s for trial in trials if trial.loop_lag_max_s is not None]
    shares = [share for trial in trials if (share := _cpu_frac(trial)) is not None]
    if not lags_s:
        return GuardReport(name=NAME, state="not_verifiable", evidence="the client's own lag was not recorded")
    ttft = evidence.point.summary("ttft_s")
    own_error_s = MIN_LAG_S if evidence.point.concurrency == 1 else MIN_LAG_CONCURRENT_S
    line_s = max(own_error_s, MAX_TTFT_FRAC * ttft.median if ttft is not None else 0.0)
    late = [trial for trial in trials if (trial.loop_lag_max_s or 0.0) > line_s]
    full = [trial for trial in trials if (_cpu_frac(trial) or 0.0) > MAX_CPU_FRAC]
    text = f"the client's event loop was late by {seconds_text(max(lags_s))} at most"
    if ttft is not None and ttft.median > 0:
        text += f" ({100 * max(lags_s) / ttft.median:.2g} % of TTFT)"
    if shares:
        text += f", CPU {100 * max(shares):.0f} % of a core"
    num_bad = len({trial.trial_id for trial in (*late, *full)})
    if num_bad and (len(trials) < 3 or 2 * num_bad >= len(trials)):
        return GuardReport(name=NAME, state="violated", evidence=f"client-bound: {text}", doubts=_DOUBTS)
    if num_bad:
        text += f"; above the line in {num_bad} of {len(trials)} repeats, which can't move the median"
    return GuardReport(name=NAME, state="verified", evidence=text)


def _cpu_frac(trial: Trial) -> float | None:
    wall_s = trial.ended_at_s - trial.started_at_s
    return trial.client_cpu_s / wall_s if trial.client_cpu_s is not None and wall_s > 0 else None
