"""What one trial gave, in one line, as soon as it ended: the figures of the results table, by the same formulas."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from deepdraft.bench.plan import PlannedTrial
from deepdraft.metrics import Point, points_of
from deepdraft.records import Header, Measurement, Run, Trial
from deepdraft.units import seconds_text

NOTHING = "no figures"


def trial_title(planned: PlannedTrial) -> str:
    """`11,000 tokens x 4, repeat 2`."""
    what = "warm-up" if planned.is_warmup else f"repeat {planned.repeat_index + 1}"
    concurrency = f" x {planned.concurrency}" if planned.concurrency > 1 else ""
    return f"{planned.context_len:,} tokens{concurrency}, {what}"


def trial_figures(header: Header, trial: Trial, results: Sequence[Measurement]) -> str:
    """`TTFT 4.31 s, prefill 2,552 tok/s, 50.3 ms/token, decode 19.9 tok/s`: medians over the trial's requests, what
    failed, and whether the needle was found. Warm-ups are shown like the rest."""
    (point,) = points_of(
        Run(
            header=header,
            measurements=tuple(replace(result, is_warmup=False) for result in results),
            trials=(replace(trial, is_warmup=False),),
        )
    )
    parts = [
        f"{before}{text}{after}"
        for before, name, write, after in _SHOWN
        if not (name == "tokens_per_step" and header.capabilities.speculation == "no")
        if (text := _median_text(point, name, write)) is not None
    ]
    if not parts:
        parts.append(NOTHING)
    if point.num_failed:
        parts.append(f"{point.num_failed} failed")
    parts += [f"pair refused: {pair.reason}" for pair in point.refused_pairs]
    if point.num_needles:
        num_found, num_asked = point.num_needles_found, point.num_needles
        parts.append("needle found" if num_found == num_asked else f"needle found in {num_found} of {num_asked}")
    return ", ".join(parts)


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


_SHOWN = (
    ("TTFT ", "ttft_s", seconds_text, ""),
    ("prefill ", "prefill_tok_s", _rate, " tok/s"),
    ("", "tpot_s", seconds_text, "/token"),
    ("decode ", "decode_tok_s", _rate, " tok/s"),
    ("", "tokens_per_step", _rate, " tok/step"),
)


def _median_text(point: Point, name: str, write: Callable[[float], str]) -> str | None:
    brief = point.summary(name)
    return write(brief.median) if brief is not None else None
