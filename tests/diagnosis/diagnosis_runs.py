"""Runs for the tests of diagnosis: measured sweeps and reported tables with laws and faults of one's choice."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trace_builder import request, steady, trial

from deepdraft.cost.device import Device
from deepdraft.cost.known_model import known_model
from deepdraft.cost.model_json import ModelShape
from deepdraft.diagnosis.case import Case, cases_of
from deepdraft.diagnosis.explain import findings_of
from deepdraft.diagnosis.facts import Facts
from deepdraft.diagnosis.finding import Finding
from deepdraft.records import (
    Acceptance,
    Capabilities,
    Header,
    Measurement,
    Reported,
    ReportedFigure,
    Run,
    SweepSpec,
    Trial,
)

LENS = (1_000, 4_000, 16_000, 64_000)
NOISE = (1.0, 1.004, 0.997)
"""What the repeats of a point are multiplied by."""
DEVICE = Device(name="the device given", bandwidth_bytes_s=1e12, flops=1e15)
Law = Callable[[int], float]


def kimi() -> ModelShape:
    """Latent attention, 61 layers, 384 experts: 70,272 bytes of KV a token in bf16."""
    model = known_model("Kimi K2.6")
    assert model is not None
    return model


def header(*, spec: Mapping[str, Any] | None = None, **capabilities: Any) -> Header:
    """Of a server without a drafter, unless said otherwise."""
    said: dict[str, Any] = {"engine": "sglang", "detected_by": "/server_info", "model": "m", "speculation": "no"}
    return Header(
        run_id="r",
        created_at="2026-11-20T10:00:00Z",
        deepdraft_version="0.1.0",
        command_line=("deepdraft", "sweep", "http://127.0.0.1:8080"),
        spec=SweepSpec(**({"url": "http://127.0.0.1:8080"} | dict(spec or {}))),
        capabilities=Capabilities(**(said | capabilities)),
    )


def measured(
    ttft_s: Law,
    step_s: Law,
    *,
    lens: Sequence[int] = LENS,
    tokens_per_step: Callable[[int], Sequence[int]] = lambda _: (1,),
    acceptance: Callable[[Acceptance], Acceptance | None] = lambda counts: counts,
    num_steps: int = 32,
    concurrency: int = 1,
    cached: int = 0,
    prompt: Mapping[str, Any] | None = None,
    trial_fields: Mapping[str, Any] | None = None,
    **header_fields: Any,
) -> Run:
    """A sweep with three repeats at each length. `tokens_per_step`, asked for each repeat, goes round over the steps;
    with more than one token a step each request has the engine's counts, which `acceptance` may change."""
    measurements: list[Measurement] = []
    trials: list[Trial] = []
    for context_len in lens:
        for repeat, factor in enumerate(NOISE):
            pattern = tokens_per_step(context_len)
            committed = [pattern[place % len(pattern)] for place in range(num_steps)]
            trial_id, at_s = f"len{context_len}-c{concurrency}-r{repeat}", 10.0 * len(trials)
            counts = _counts(committed) if max(pattern) > 1 else None
            for index in range(concurrency):
                stream = steady(
                    num_steps + 1,
                    ttft_s=ttft_s(context_len) * factor,
                    gap_s=step_s(context_len) * factor,
                    prompt=context_len,
                    cached=cached,
                    stated=[1, *committed],
                    usage=1 + sum(committed),
                )
                measurements.append(
                    request(
                        stream,
                        trial_id,
                        asked=context_len,
                        max_tokens=1 + sum(committed),
                        started_at_s=at_s,
                        request_index=index,
                        acceptance=acceptance(counts) if counts is not None else None,
                        prompt=dict(prompt or {}),
                    )
                )
            trials.append(
                trial(
                    trial_id,
                    context_len=context_len,
                    concurrency=concurrency,
                    repeat_index=repeat,
                    started_at_s=at_s,
                    **dict(trial_fields or {}),
                )
            )
    if any(max(tokens_per_step(length)) > 1 for length in lens):
        header_fields = {"speculation": "yes"} | header_fields
    return Run(header=header(**header_fields), measurements=tuple(measurements), trials=tuple(trials))


def _counts(committed: Sequence[int]) -> Acceptance:
    longest = max(committed)
    accepted = [length - 1 for length in committed]
    return Acceptance(
        source="meta_info",
        num_steps=len(accepted),
        num_draft_tokens=len(accepted) * max(longest - 1, 1),
        num_accepted_tokens=sum(accepted),
        accepted_len_histogram=tuple(accepted.count(length) for length in range(longest)),
    )


def joined(*runs: Run) -> Run:
    """One run with the points of all, under the first header."""
    return replace(
        runs[0],
        measurements=tuple(each for run in runs for each in run.measurements),
        trials=tuple(each for run in runs for each in run.trials),
        reported=tuple(each for run in runs for each in run.reported),
    )


def linear(start_s: float, per_1k_s: float) -> Law:
    """start + slope x length."""
    return lambda length: start_s + per_1k_s * length / 1e3


def quadratic(start_s: float, per_1k_s: float, per_1k_square_s: float) -> Law:
    """a + b k + c k^2, k in thousand tokens."""
    return lambda length: start_s + per_1k_s * length / 1e3 + per_1k_square_s * (length / 1e3) ** 2


def clean(**fields: Any) -> Run:
    """Nothing to find: prefill in proportion to the length, decode almost flat, all cold."""
    return measured(linear(0.02, 0.05), linear(0.02, 0.00004), **fields)


def drafted(**fields: Any) -> Run:
    """Nothing to find, with a drafter: 3 tokens a step at every length."""
    fields = {"tokens_per_step": lambda _: (2, 3, 4)} | fields
    return measured(linear(0.02, 0.05), linear(0.03, 0.00004), **fields)


def table(*points: Mapping[str, Any], **header_fields: Any) -> Run:
    """Reported points: `context_len` (or `asked`), figures by name as a value, (value, half_width) or
    ReportedFigure, and what else a Reported has."""
    return Run(header=header(**header_fields), reported=tuple(_reported(dict(point)) for point in points))


def _reported(said: dict[str, Any]) -> Reported:
    own = {name: said.pop(name) for name in list(said) if name in Reported.__dataclass_fields__}
    return Reported(figures={name: _figure(value) for name, value in said.items()}, **own)


def _figure(value: Any) -> ReportedFigure:
    if isinstance(value, ReportedFigure):
        return value
    if isinstance(value, tuple):
        return ReportedFigure(values=(value[0],), half_width=value[1])
    return ReportedFigure(values=(float(value),))


def cases(*runs: Run | tuple[str, Run], facts: Facts | None = None) -> tuple[Case, ...]:
    """A case each, with the others beside it."""
    named = [run if isinstance(run, tuple) else (f"run {place}", run) for place, run in enumerate(runs)]
    return cases_of(named, facts or Facts())


def found(*runs: Run | tuple[str, Run], facts: Facts | None = None) -> dict[str, Finding]:
    """The first run's findings by code, the first of each."""
    findings: dict[str, Finding] = {}
    for finding in findings_of(cases(*runs, facts=facts)[0]):
        findings.setdefault(finding.code, finding)
    return findings
