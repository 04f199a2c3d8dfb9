"""Figures of a point that somebody else measured, under our names.

A figure that the source does not print but that follows from one it prints (time a token from tokens a second, time
to first token from prefill tokens a second) is computed, with the rounding carried over; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping

from deepdraft.errors import ResultsError
from deepdraft.metrics.figure import FIGURE_NAMES, Figure
from deepdraft.records import Reported, ReportedFigure
from deepdraft.stats import summary


def reported_asked_len(line: Reported) -> int:
    """The length the point was asked at, or the actual one where that is all the source gives, in tokens.

    Raises ResultsError when it gives neither.
    """
    length = line.asked_context_len if line.asked_context_len is not None else line.context_len
    if length is None:
        raise ResultsError("a reported point has neither an asked nor an actual context length")
    return length


def reported_context(line: Reported) -> tuple[int, str]:
    """The length to compute with, in tokens, and where it comes from."""
    if line.context_len is not None:
        return line.context_len, "as reported"
    return reported_asked_len(line), "as asked, the source does not tell the actual length"


def reported_figures(line: Reported) -> Mapping[str, Figure]:
    """The source's figures and what follows from them, in the catalogue's order."""
    known = {name: _figure(said) for name, said in line.figures.items()}
    for name, other in (("tpot_s", "decode_tok_s"), ("decode_tok_s", "tpot_s")):
        if name not in known and other in known:
            known[name] = _quotient(known[other], line.figures[other], 1.0, f"1 / {other}")
    if line.context_len is not None and line.is_cold is not False:
        for name, other in (("ttft_s", "prefill_tok_s"), ("prefill_tok_s", "ttft_s")):
            if name not in known and other in known:
                known[name] = _quotient(known[other], line.figures[other], line.context_len, f"tokens / {other}")
    return {name: known[name] for name in FIGURE_NAMES if name in known}


def _figure(said: ReportedFigure) -> Figure:
    brief = summary(said.values)
    if brief is None:
        raise ResultsError("a reported figure has no value")
    words = [said.statistic or "", said.definition or ""]
    source = "as reported" + "".join(f", {word}" for word in words if word)
    return Figure(
        summary=brief,
        sources=(source,),
        half_width=said.half_width,
        doubts=(said.doubt,) if said.doubt is not None else (),
    )


def _quotient(figure: Figure, said: ReportedFigure, dividend: float, formula: str) -> Figure:
    """dividend / figure, sample by sample; the rounding grows to the wider side."""
    values = [dividend / value for value in said.values if value > 0]
    brief = summary(values)
    if brief is None:
        raise ResultsError(f"a reported figure is not above zero, so {formula} has no value")
    half_width = None
    if said.half_width is not None and min(said.values) > said.half_width:
        half_width = max(abs(dividend / (value - said.half_width) - dividend / value) for value in said.values)
    return Figure(
        summary=brief, sources=(f"{figure.sources[0]}: {formula}",), half_width=half_width, doubts=figure.doubts
    )
