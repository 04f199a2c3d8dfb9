"""How a comparison says things: figures, ratios, the crossover. Shared by the text and by what is told elsewhere."""

from __future__ import annotations

from deepdraft.compare.comparison import Comparison
from deepdraft.compare.verdict import Verdict
from deepdraft.records import Run
from deepdraft.stats.crossover import Crossover, NoCrossover
from deepdraft.stats.interval import CannotTell
from deepdraft.units import seconds_text, tokens_text

FIGURE_TEXT = {
    "ttft_s": "TTFT",
    "tpot_s": "ms/token",
    "tokens_per_step": "tok/step",
    "output_tok_s": "tok/s",
}


def value_text(figure: str, value: float) -> str:
    """A value in the unit of its figure's name: 0.46 s, 8.43, 3.10."""
    if figure == "ttft_s":
        return seconds_text(value)
    return _digits(value * 1e3 if figure == "tpot_s" else value)


def ratio_text(value: float) -> str:
    """In six characters at most: 0.605, 1.02, 12.4, <0.01, >999."""
    if value < 0.01:
        return "<0.01"
    return f"{value:.3f}" if value < 1 else _digits(value) if value < 999.5 else ">999"


def interval_text(verdict: Verdict) -> str:
    """The ratio's interval: 0.59 - 0.62."""
    interval = verdict.ratio.interval
    return "-" if interval is None else f"{ratio_text(interval.low)} - {ratio_text(interval.high)}"


def crossover_text(comparison: Comparison) -> str:
    """Where B stops being faster a token, or starts to be; or that it can't be told, and what would tell."""
    left_out = ", ".join(map(tokens_text, comparison.left_out))
    return _crossover_text(comparison.crossover) + (f" (left out, since in doubt: {left_out})" if left_out else "")


def _crossover_text(found: Crossover | NoCrossover | CannotTell) -> str:
    if isinstance(found, Crossover):
        interval = found.len.interval
        within = "" if interval is None else f" [{tokens_text(interval.low)} - {tokens_text(interval.high)}]"
        below, above = ("faster", "slower") if found.is_rising else ("slower", "faster")
        return f"{tokens_text(found.len.value)}{within}: a token of B is {below} below it and {above} beyond"
    if isinstance(found, NoCrossover):
        if found.side == "below":
            return f"none up to {tokens_text(found.up_to)}: a token of B is faster at every length measured"
        return (
            f"none from {tokens_text(found.lowest)} to {tokens_text(found.up_to)}: a token of B is slower at every "
            "length measured"
        )
    return f"cannot tell: {found.reason}. What would tell: {found.would_tell}"


def run_text(run: Run) -> str:
    """Which server, model and drafter a run measured, as far as it says."""
    found, source = run.header.capabilities, run.header.source
    engine = " ".join(part for part in (found.engine, found.version) if part)
    drafter = {"yes": found.speculation_method or "drafter on", "no": "drafter off"}.get(found.speculation)
    parts = [source.tool if source is not None else engine, found.model, drafter]
    return ", ".join(part for part in parts if part)


def _digits(value: float) -> str:
    if value >= 999.5:
        return f"{value:.0f}"
    return f"{value:#.3g}".removesuffix(".")
