"""What a report is handed beside the runs: laws, floors, findings, attribution, a comparison, as figures and words.

The command fills these from the rooms that know (statistics, costs, diagnosis, comparison); the report only lays them
out, and looks right without any of them. Times are in seconds, lengths in tokens; `run_index` is the place of the run
among those reported, from 0.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateView:
    """A value, and its interval where it has one."""

    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LawView:
    """A fitted law of one figure over context length, drawn through `values` at `context_lens`."""

    run_index: int
    figure: str
    """A name of the catalogue in metrics.figure: ttft_s, tpot_s."""
    formula: str
    """With its coefficients, as it is to be read: `TPOT = 8.1 ms + 4.9 ms per 1k tokens`."""
    context_lens: tuple[float, ...]
    values: tuple[float, ...]
    lows: tuple[float, ...] | None = None
    """The interval's ends at each length; None where the points carry no interval."""
    highs: tuple[float, ...] | None = None
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLawView:
    """Why a figure has no law, and what would tell."""

    run_index: int
    figure: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorView:
    """The least a figure can be on a device."""

    run_index: int
    figure: str
    context_lens: tuple[float, ...]
    values: tuple[float, ...]
    assumption: str
    """What it counts and leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceView:
    """One figure a finding rests on."""

    name: str
    value: str
    """As printed, with its unit."""
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisView:
    """A possible cause."""

    name: str
    support: str
    """strong, some, weak, against"""
    why: str
    prediction: str
    experiment: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """One thing the data show."""

    code: str
    name: str
    severity: str
    """error, warning, info, unknown"""
    summary: str
    run_index: int | None = None
    """None: of all runs together."""
    evidence: tuple[EvidenceView, ...] = ()
    remedy: str = ""
    hypotheses: tuple[HypothesisView, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartView:
    """One part of a step's time."""

    name: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BarView:
    """The measured time at one length in parts; what no part explains is the residual."""

    context_len: float
    measured_s: float | None
    """What the parts and the residual sum to; None where only the parts are known."""
    parts: tuple[PartView, ...]
    residual_s: float | None
    """Below zero where the parts contradict what was measured; None where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributionView:
    """Where the time goes while decoding."""

    run_index: int
    per: str
    """step, token or answer: whose time it is."""
    bars: tuple[BarView, ...]
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictView:
    """One figure at one context length, after against before."""

    context_len: float
    concurrency: int = 1
    figure: str
    verdict: str
    """better, worse, no difference larger than x %, cannot tell: in the comparison's own words."""
    ratio: EstimateView | None = None
    """after / before; None where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrossoverView:
    """Where the second run stops being faster, for one figure."""

    figure: str
    text: str
    """`41k [36k, 47k]`, `none up to 185k`, or why it cannot be told."""
    context_len: float | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonView:
    """Two runs against each other."""

    before_index: int
    after_index: int
    verdicts: tuple[VerdictView, ...]
    crossovers: tuple[CrossoverView, ...] = ()
    remarks: tuple[str, ...] = ()
    """Points that were not compared and why, and what else a reader must know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """Everything handed in. All empty: a report of the runs alone."""

    laws: tuple[LawView, ...] = ()
    no_laws: tuple[NoLawView, ...] = ()
    floors: tuple[FloorView, ...] = ()
    findings: tuple[FindingView, ...] = ()
    is_explained: bool = False
    """Whether a diagnosis was made: without findings, "nothing found" is said only then."""
    attributions: tuple[AttributionView, ...] = ()
    comparisons: tuple[ComparisonView, ...] = ()
    remarks: tuple[str, ...] = ()
    """What could not be handed in and why, one sentence each."""
