"""Runs of known laws: sweeps with relative noise, alone or in turns with another."""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trace_builder import header, request, steady, trial

from deepdraft.records import Header, Reported, ReportedFigure, Run, Source

Law = Callable[[float], float]
LENGTHS = (8_000, 16_000, 32_000, 64_000, 128_000)
_APART_S = 100.0
_START = datetime.datetime(2026, 11, 20, 10, tzinfo=datetime.UTC)


def prefill(length: float) -> float:
    return 0.05 + 1e-5 * length


def plain(length: float) -> float:
    return 0.020 + 1e-7 * length


def drafted(length: float) -> float:
    """As fast as `plain` at 70,000 tokens."""
    return 0.006 + 3e-7 * length


@dataclass(frozen=True)
class Sweep:
    """What a run is made of."""

    tpot: Law = plain
    ttft: Law = prefill
    lengths: Sequence[int] = LENGTHS
    num_repeats: int = 4
    noise_frac: float = 0.01
    seed: int = 0
    spec: Mapping[str, Any] | None = None
    capabilities: Mapping[str, Any] | None = None
    decode_len: int = 16
    drift_frac: float = 0.0
    """Slower by this much a repeat."""


def run_of(sweep: Sweep, *, turn: int | None = None, run_id: str = "r") -> Run:
    """The run. turn: 0 or 1 for the two halves of a pair that alternates A B B A; None: one after the other."""
    chance = random.Random(f"{sweep.seed}:{run_id}")
    measurements, trials = [], []
    for repeat_index in range(sweep.num_repeats):
        round_lengths = sweep.lengths if repeat_index % 2 == 0 else sweep.lengths[::-1]
        for place, length in enumerate(round_lengths):
            slot = (repeat_index * len(sweep.lengths) + place) * 2
            if turn is not None:
                slot += turn if repeat_index % 2 == 0 else 1 - turn
            slow = (1 + sweep.drift_frac * repeat_index) * (1 + sweep.noise_frac * chance.gauss(0, 1))
            trial_id, at_s = f"len{length}-c1-r{repeat_index}", slot * _APART_S
            answer = steady(
                sweep.decode_len, ttft_s=sweep.ttft(length) * slow, gap_s=sweep.tpot(length) * slow, prompt=length
            )
            measurements.append(
                request(answer, trial_id, asked=length, started_at_s=at_s, max_tokens=sweep.decode_len)
            )
            trials.append(
                trial(trial_id, context_len=length, repeat_index=repeat_index, started_at_s=at_s, took_s=90.0)
            )
    spec = {"context_lens": tuple(sweep.lengths), "num_repeats": sweep.num_repeats, **(sweep.spec or {})}
    return Run(
        header=_header(run_id, spec, sweep.capabilities or {}, is_later=turn is None and run_id != "r"),
        measurements=tuple(measurements),
        trials=tuple(trials),
    )


def alternating(first: Sweep, second: Sweep) -> tuple[Run, Run]:
    """Two runs whose trials alternate A B B A."""
    return run_of(first, turn=0, run_id="r"), run_of(second, turn=1, run_id="s")


def apart(first: Sweep, second: Sweep) -> tuple[Run, Run]:
    """Two runs, one after the other."""
    return run_of(first, run_id="r"), run_of(second, run_id="s")


def reported_run(tok_s: Mapping[int, tuple[float, ...]], *, half_width: float | None = None, **fields: Any) -> Run:
    """A published table of tokens a second by context length; `fields` go to every point."""
    points = tuple(
        Reported(
            context_len=length,
            figures={"decode_tok_s": ReportedFigure(values=values, half_width=half_width)},
            **fields,
        )
        for length, values in tok_s.items()
    )
    return Run(header=replace(header(), source=Source(tool="a published table")), reported=points)


def _header(run_id: str, spec: Mapping[str, Any], capabilities: Mapping[str, Any], *, is_later: bool) -> Header:
    start = _START + datetime.timedelta(days=1 if is_later else 0)
    return replace(header(spec=dict(spec), **capabilities), run_id=run_id, created_at=start.isoformat())
