"""What charts share: the axis of context lengths, names, colours, and the sentence that describes a chart."""

from __future__ import annotations

from collections.abc import Sequence

from deepdraft.report.chart import Axis, Series
from deepdraft.report.subject import Curve, Subject

CONTEXT = Axis(label="context length (tokens)", kind="length", is_log=True)
FIGURE_LABELS = {
    "ttft_s": "TTFT",
    "tpot_s": "time a token",
    "decode_tok_s": "decode tok/s",
    "prefill_tok_s": "prefill tok/s",
    "tokens_per_step": "tokens a step",
    "step_s": "time a step",
    "acceptance_len": "acceptance",
}


def colour_of(subjects: Sequence[Subject], index: int, place: int = 0) -> int:
    """Each curve of each run has its own; a law and a floor have that of the run's first curve."""
    return sum(len(subject.curves) for subject in subjects[:index]) + place


def series_name(subjects: Sequence[Subject], index: int, curve: Curve | None, word: str) -> str:
    """What a reader calls a series: the run where there are several, the curve where it has several, else a word."""
    reported = word == "measured" and subjects[index].run.header.source is not None
    word = "reported" if reported else word
    parts = [subjects[index].name] if len(subjects) > 1 else []
    if curve is not None and curve.name:
        parts.append(curve.name)
    if not parts or word not in ("measured", "reported"):
        parts.append(word)
    return ", ".join(parts)


def about(subjects: Sequence[Subject], index: int, text: str) -> str:
    """A sentence about one run, which is named where there are several."""
    return f"{subjects[index].name}: {text}" if len(subjects) > 1 else text


def summary_of(what: str, series: Sequence[Series], x: Axis, y: Axis) -> str:
    """From where to where each set of points goes."""
    shown = [one for one in series if one.role in ("points", "part")]
    parts = [
        f"{one.name}: {y.text(one.ys[0])} at {x.text(one.xs[0])}"
        + (f", {y.text(one.ys[-1])} at {x.text(one.xs[-1])}" if len(one.xs) > 1 else "")
        for one in shown[:6]
    ]
    more = f"; and {len(shown) - 6} more" if len(shown) > 6 else ""
    return f"{what}. {'; '.join(parts)}{more}."
