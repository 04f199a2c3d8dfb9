"""Fills a report's views from the rooms that know: laws, device floors, findings, attribution, comparison.

What can't be had (an extra that is not installed) is left out and said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

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
    PartView,
    VerdictView,
    Views,
)
from deepdraft.units import seconds_text, tokens_text

if TYPE_CHECKING:
    from deepdraft.compare.comparison import Comparison
    from deepdraft.diagnosis.attribution import Attribution
    from deepdraft.diagnosis.case import Case
    from deepdraft.diagnosis.facts import Facts
    from deepdraft.diagnosis.finding import Evidence, Finding
    from deepdraft.stats.ratio import RatioEstimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the command line says beside the files. None: not said."""

    model: Path | None = None
    device: str | None = None
    tp_size: int | None = None


def views_of(subjects: Sequence[Subject], given: Given) -> Views:
    """Everything that can be said of the runs. Raises UsageError for a model or device that can't be used."""
    facts = _facts(given)
    try:
        from deepdraft.compare.comparison import compare_runs
        from deepdraft.diagnosis.case import cases_of
        from deepdraft.diagnosis.explain import explanation
        from deepdraft.report.fit import fit
    except ModuleNotFoundError as missing:
        if (missing.name or "").partition(".")[0] not in ("numpy", "scipy"):
            raise
        remark = (
            f"No laws, findings or comparison: {missing.name} is not installed (pip install 'deepdraft[analysis]')"
        )
        return Views(remarks=(remark,))
    cases = cases_of([(subject.name, subject.run) for subject in subjects], facts)
    explanations = [explanation(case) for case in cases]
    fitted = fit(subjects)
    return Views(
        laws=fitted.laws,
        no_laws=fitted.no_laws,
        floors=tuple(floor for index, case in enumerate(cases) for floor in _floors(index, case)),
        findings=tuple(
            _finding(index, finding) for index, one in enumerate(explanations) for finding in one.findings
        ),
        is_explained=True,
        attributions=tuple(
            view for index, one in enumerate(explanations) for view in _attributions(index, one.attributions)
        ),
        comparisons=tuple(
            _comparison(index, (subjects[0].name, subject.name), compare_runs(subjects[0].run, subject.run))
            for index, subject in enumerate(subjects)
            if index > 0
        ),
    )


def _facts(given: Given) -> Facts:
    from deepdraft.cost.device import device
    from deepdraft.cost.model_json import model_shape
    from deepdraft.diagnosis.facts import Facts

    return Facts(
        model=model_shape(given.model) if given.model is not None else None,
        device=device(given.device) if given.device is not None else None,
        tp_size=given.tp_size,
    )


def _floors(index: int, case: Case) -> list[FloorView]:
    """Floors of TTFT and of time a token at each measured length, where the model and the device are known."""
    from deepdraft.cost.floor import decode_floor_s, prefill_floor_s

    model, device, tp_size = case.model, case.device, case.tp_size
    lens = sorted({float(point.context_len) for point in case.points})
    if model is None or device is None or not lens:
        return []
    floors = []
    prefill = [prefill_floor_s(model, device, length, tp_size) for length in lens]
    known = [seconds for seconds in prefill if seconds is not None]
    if len(known) == len(lens):
        floors.append(
            FloorView(
                run_index=index,
                figure="ttft_s",
                context_lens=tuple(lens),
                values=tuple(known),
                assumption=f"every operation of the prefill at the arithmetic peak of {tp_size} x {device.name}",
            )
        )
    assumption = (
        f"weights of one token and the whole KV cache read once at the full bandwidth of {tp_size} x {device.name}; "
        "no collectives, no launches"
    )
    if case.speculates is not False:
        assumption += "; a floor of one step: several tokens a step can go below it"
    floors.append(
        FloorView(
            run_index=index,
            figure="tpot_s",
            context_lens=tuple(lens),
            values=tuple(decode_floor_s(model, device, length, tp_size) for length in lens),
            assumption=assumption,
        )
    )
    return floors


def _finding(index: int, finding: Finding) -> FindingView:
    from deepdraft.diagnosis.finding import by_support

    return FindingView(
        run_index=index,
        code=finding.code,
        name=finding.name,
        severity=finding.severity,
        summary=finding.summary,
        evidence=tuple(_evidence(one) for one in finding.evidence),
        remedy=finding.remedy,
        hypotheses=tuple(
            HypothesisView(
                name=one.name,
                support=one.support,
                why=one.why,
                prediction=one.prediction,
                experiment=one.experiment,
            )
            for one in by_support(finding.hypotheses)
        ),
    )


def _evidence(evidence: Evidence) -> EvidenceView:
    return EvidenceView(name=evidence.name, value=_value_text(evidence), source=evidence.source)


def _value_text(evidence: Evidence) -> str:
    from deepdraft.diagnosis.number import bytes_s, flops, plain

    value, unit = evidence.value, evidence.unit
    if isinstance(value, str):
        return f"{value} {unit}".rstrip()
    if unit == "s":
        return seconds_text(value) if value >= 0 else f"-{seconds_text(-value)}"
    if unit in ("B/s", "FLOP/s"):
        return bytes_s(value) if unit == "B/s" else flops(value)
    shown = f"{value:,.0f}" if value >= 1000 and value == int(value) else plain(value, 4)
    return f"{shown} {unit}".rstrip()


def _attributions(index: int, found: Sequence[Attribution]) -> list[AttributionView]:
    """One view for each kind of time that was taken apart."""
    views = []
    for per in dict.fromkeys(one.per for one in found):
        alike = [one for one in found if one.per == per]
        sources = dict.fromkeys(f"{part.name}: {part.source}" for one in alike for part in one.parts)
        views.append(
            AttributionView(
                run_index=index,
                per=per,
                bars=tuple(
                    BarView(
                        context_len=one.context_len,
                        measured_s=one.measured_s,
                        parts=tuple(PartView(name=part.name, seconds=part.seconds) for part in one.parts),
                        residual_s=one.residual_s,
                    )
                    for one in alike
                ),
                remarks=tuple(sources),
            )
        )
    return views


def _comparison(index: int, names: tuple[str, str], comparison: Comparison) -> ComparisonView:
    from deepdraft.compare.comparison import CROSSOVER_FIGURE
    from deepdraft.compare.words import crossover_text
    from deepdraft.stats.crossover import Crossover

    found = comparison.crossover
    length = found.len if isinstance(found, Crossover) else None
    interval = length.interval if length is not None else None
    unpaired = [f"{tokens_text(one.context_len)} is not compared: {one.reason}" for one in comparison.unpaired]
    return ComparisonView(
        before_index=0,
        after_index=index,
        verdicts=tuple(
            VerdictView(
                context_len=point.context_len,
                concurrency=point.concurrency,
                figure=verdict.figure,
                verdict=verdict.text + (f": {verdict.reason}" if verdict.reason else ""),
                ratio=_ratio(verdict.ratio),
            )
            for point in comparison.points
            for verdict in point.verdicts
        ),
        crossovers=(
            CrossoverView(
                figure=CROSSOVER_FIGURE,
                text=crossover_text(comparison),
                context_len=length.value if length is not None else None,
                low=interval.low if interval is not None else None,
                high=interval.high if interval is not None else None,
            ),
        ),
        remarks=(f"A: {names[0]}. B: {names[1]}.", *comparison.remarks, *unpaired),
    )


def _ratio(ratio: RatioEstimate) -> EstimateView:
    return EstimateView(
        value=ratio.value,
        low=ratio.interval.low if ratio.interval is not None else None,
        high=ratio.interval.high if ratio.interval is not None else None,
        note=ratio.note or "",
    )
