"""Runs and views for the tests of the report: sweeps with and without a drafter, all views, hostile text."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from trace_builder import accepted, header, request, steady, trial

from deepdraft.records import End, Failure, Note, Refusal, Reported, ReportedFigure, Run, Source
from deepdraft.records.file import read_run
from deepdraft.report.subject import Subject
from deepdraft.report.view import (
    AttributionView,
    BarView,
    ComparisonView,
    CrossoverView,
    EstimateView,
    EvidenceView,
    FindingView,
    FloorView,
    HypothesisView,
    LawView,
    NoLawView,
    PartView,
    VerdictView,
    Views,
)

LENS = (1_000, 4_000, 16_000, 64_000)
REFERENCE = Path(__file__).parents[2] / "examples" / "reference_deployment" / "sweep.jsonl"

HOSTILE = (
    "<script>hacked()</script>",
    "</script><script>hacked()</script>",
    "<img src=x onerror=hacked()>",
    '" onmouseover="hacked()" x=\'',
    "javascript:hacked()",
    "<!--<script>",
    "]]><svg/onload=hacked()>",
    "{{7*7}} ${hacked()} `hacked()`",
    "line\u2028separator\u2029 and \u202etxet desrever\x00\x1b[31m",
    "\\input{/etc/passwd} $x^2$ \\write18{id} %",
    "| a | b |\n# heading [link](javascript:hacked()) ![x](http://evil.example/x.png)",
    "&lt;b&gt; &amp; 中文 émigré 🚢",
)


def sweep(*, is_drafting: bool = False, lens: tuple[int, ...] = LENS, **fields: object) -> Run:
    """Three repeats at each length; TTFT and time a token grow with it. Every guard but the load's is verified."""
    measurements, trials = [], []
    for place, length in enumerate(lens):
        per = 4 - place if is_drafting else 1
        for repeat in range(3):
            at_s = 100.0 * len(trials)
            near = 1 + 0.01 * (repeat - 1)
            gap_s = (0.010 + 2e-7 * length) * (2 if is_drafting else 1) * near
            one = steady(
                60 // per,
                ttft_s=(0.05 + 1e-4 * length + 1e-9 * length**2) * near,
                gap_s=gap_s,
                per_event=per,
                prompt=length,
                cached=0,
                stated=[per] * (60 // per),
            )
            counts = accepted(accepted_len_histogram=(0,) * (per - 1) + (19,)) if is_drafting else None
            trial_id = f"len{length}-c1-r{repeat}"
            measurements.append(
                request(one, trial_id, asked=length, max_tokens=60, started_at_s=at_s, acceptance=counts)
            )
            quiet = {"loop_lag_max_s": 1e-4, "client_cpu_s": 0.01}
            trials.append(trial(trial_id, context_len=length, repeat_index=repeat, started_at_s=at_s, **quiet))
    settings: dict[str, object] = {"speculation": "yes" if is_drafting else "no", **fields}
    head = dataclasses.replace(header(**settings), run_id="drafting" if is_drafting else "plain")
    return Run(
        header=head,
        measurements=tuple(measurements),
        trials=tuple(trials),
        ends=(End(at_s=9e3, outcome="complete"),),
    )


def reference() -> Subject:
    """The reference deployment's table."""
    return Subject(name="reference", run=read_run(REFERENCE))


def two() -> tuple[Subject, ...]:
    """A run without a drafter, and one with."""
    return Subject(name="plain", run=sweep()), Subject(name="drafter", run=sweep(is_drafting=True))


def all_views(text: str = "words") -> Views:
    """Everything that can be handed in, for the runs of `two`; `text` stands wherever words may."""
    lens = tuple(float(length) for length in LENS)
    return Views(
        laws=(
            LawView(
                run_index=0,
                figure="tpot_s",
                formula=f"time a token = 10 ms + 0.2 ms a 1k tokens {text}",
                context_lens=lens,
                values=tuple(0.010 + 2e-7 * length for length in lens),
                lows=tuple(0.009 + 2e-7 * length for length in lens),
                highs=tuple(0.011 + 2e-7 * length for length in lens),
                doubts=(text,),
            ),
        ),
        no_laws=(NoLawView(run_index=1, figure="tpot_s", reason=text),),
        floors=(
            FloorView(run_index=0, figure="tpot_s", context_lens=lens, values=(0.002,) * len(lens), assumption=text),
        ),
        findings=(
            FindingView(
                code="D104",
                name=f"decode_grows {text}",
                severity="warning",
                summary=text,
                run_index=0,
                evidence=(EvidenceView(name=text, value=text, source=text),),
                remedy=text,
                hypotheses=(HypothesisView(name=text, support="some", why=text, prediction=text, experiment=text),),
            ),
            FindingView(code="D999", name="later", severity="severe", summary="an unknown severity"),
        ),
        is_explained=True,
        attributions=(
            AttributionView(
                run_index=0,
                per="step",
                bars=tuple(
                    BarView(
                        context_len=length,
                        measured_s=0.010 + 2e-7 * length,
                        parts=(
                            PartView(name="weights", seconds=0.004),
                            PartView(name=f"KV read {text}", seconds=1e-7 * length),
                        ),
                        residual_s=0.006 + 1e-7 * length,
                    )
                    for length in lens
                ),
                remarks=(text,),
            ),
        ),
        comparisons=(
            ComparisonView(
                before_index=0,
                after_index=1,
                verdicts=tuple(
                    VerdictView(
                        context_len=length,
                        figure="tpot_s",
                        verdict=f"better {text}",
                        ratio=EstimateView(value=ratio, low=0.9 * ratio, high=1.1 * ratio),
                    )
                    for length, ratio in zip(lens, (0.5, 0.67, 1.0, 2.0), strict=True)
                ),
                crossovers=(
                    CrossoverView(
                        figure="tpot_s", text=f"16k {text}", context_len=16_000.0, low=12_000.0, high=20_000.0
                    ),
                ),
                remarks=(text,),
            ),
        ),
        remarks=(text,),
    )


def hostile(text: str) -> Subject:
    """A run with `text` wherever a results file holds somebody's words."""
    run = sweep(
        is_drafting=True,
        engine=text,
        version=text,
        model=text,
        tokenizer=text,
        speculation_method=text,
        settings={text: text, "nested": {text: [text, {"deep": text}]}},
        doubts=(text,),
        spec={"url": text, "text": text, "device": text, "context_lens": LENS},
    )
    failed = dataclasses.replace(run.measurements[1], failure=Failure(name=text, message=text))
    needle = dataclasses.replace(
        run.measurements[2].prompt, needle=text, head=text, text_kind=text, is_repetitive=True
    )
    asked = dataclasses.replace(run.measurements[2], prompt=needle, needle_found=False)
    head = dataclasses.replace(
        run.header,
        run_id=text,
        created_at=text,
        deepdraft_version=text,
        command_line=("deepdraft", text),
        environment={text: text},
        source=Source(tool=text, version=text, path=text, unknowns=(text,), traps=(text,)),
    )
    reported = Reported(
        context_len=200_000,
        workload=text,
        figures={
            "tpot_s": ReportedFigure(values=(0.2,), statistic=text, definition=text, doubt=text),
            "acceptance_len": ReportedFigure(values=(1.5,), definition=text, doubt=text),
        },
        remarks=(text,),
    )
    return Subject(
        name=text,
        run=dataclasses.replace(
            run,
            header=head,
            measurements=(run.measurements[0], failed, asked, *run.measurements[3:]),
            reported=(reported,),
            refusals=(Refusal(context_len=400_000, concurrency=1, reason=text),),
            notes=(Note(at_s=1.0, topic=text, message=text),),
            ends=(End(at_s=9e3, outcome="interrupted", message=text),),
            damage=(text,),
        ),
    )
