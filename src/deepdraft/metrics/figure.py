"""The catalogue of figures: name, unit and definition, in the order they are shown. One place for tables, JSON, CSV
and docs/concepts/figures.md."""

from __future__ import annotations

from dataclasses import dataclass

from deepdraft.stats import Summary


@dataclass(frozen=True, slots=True, kw_only=True)
class FigureKind:
    """One entry of the catalogue."""

    name: str
    unit: str
    definition: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure of a point: its samples in brief, and where they come from."""

    summary: Summary
    sources: tuple[str, ...] = ()
    """Each distinct source of its samples, in words; empty for what the client's clock alone gives."""
    half_width: float | None = None
    """How far off a sample may be by the rounding of a printed figure; None where nothing was rounded, or how is not
    known."""
    doubts: tuple[str, ...] = ()
    """What the source of a reported figure leaves in doubt."""


STEP_PARTS = {
    "draft": "the drafter's own pass",
    "build": "building the draft tree",
    "verify": "the target's pass over the drafts",
    "compact": "moving accepted rows together in the KV cache",
    "other": "everything else (scheduling, sampling, committing)",
}
"""What a decode or verify step consists of where a server tells: the figures step_draft_s, step_build_s ..."""

FIGURE_KINDS = (
    FigureKind(
        name="ttft_s",
        unit="s",
        definition="request sent -> first event with answer text, reasoning or tool-call text",
    ),
    FigureKind(
        name="answer_ttft_s", unit="s", definition="request sent -> first event with answer text (reasoning left out)"
    ),
    FigureKind(
        name="prefill_tok_s",
        unit="tok/s",
        definition="uncached prompt tokens / ttft_s (prefill as seen from outside: queue, network and the first "
        "token are in it)",
    ),
    FigureKind(
        name="tpot_s",
        unit="s/token",
        definition="(last token arrival - first token arrival) / tokens that came after the first arrival",
    ),
    FigureKind(name="decode_tok_s", unit="tok/s", definition="1 / tpot_s"),
    FigureKind(
        name="itl_s",
        unit="s/token",
        definition="gap between token arrivals / tokens of the later one; the median over a request's tokens",
    ),
    FigureKind(name="tokens_per_step", unit="tokens", definition="tokens committed a decode step, over all steps"),
    FigureKind(name="step_s", unit="s", definition="one decode or verify step of the engine; not a time a token"),
    FigureKind(
        name="acceptance_len",
        unit="tokens",
        definition="tokens committed a verify step, bonus token included; 1 means that no draft was accepted",
    ),
    *(
        FigureKind(
            name=f"step_{part}_s", unit="s", definition=f"{what} in one decode or verify step, by the server's clock"
        )
        for part, what in STEP_PARTS.items()
    ),
    FigureKind(name="e2el_s", unit="s", definition="request sent -> end of the stream"),
    FigureKind(name="ttft_from_scheduled_s", unit="s", definition="ttft_s counted from when it was to be sent"),
    FigureKind(name="e2el_from_scheduled_s", unit="s", definition="e2el_s counted from when it was to be sent"),
    FigureKind(name="server_prefill_s", unit="s", definition="prefill by the engine's own clock"),
    FigureKind(
        name="server_prefill_tok_s", unit="tok/s", definition="uncached prompt tokens a second by the engine's clock"
    ),
    FigureKind(name="server_decode_tok_s", unit="tok/s", definition="output tokens a second by the engine's clock"),
    FigureKind(
        name="output_tok_s",
        unit="tok/s",
        definition="output tokens of all requests of a trial / time from its first request sent to its last end",
    ),
    FigureKind(name="total_tok_s", unit="tok/s", definition="as output_tok_s, with prompt tokens counted as well"),
    FigureKind(
        name="mean_concurrency", unit="requests", definition="requests in flight, averaged over a trial's makespan"
    ),
)

FIGURE_NAMES = tuple(kind.name for kind in FIGURE_KINDS)
TRIAL_FIGURES = frozenset({"output_tok_s", "total_tok_s", "mean_concurrency"})
"""One sample a trial; every other figure has one sample a request."""
PERCENTILE_FIGURES = ("ttft_s", "tpot_s", "e2el_s", "ttft_from_scheduled_s", "e2el_from_scheduled_s")
PERCENTILES = (0.5, 0.9, 0.95, 0.99, 0.999)
