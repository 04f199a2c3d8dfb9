"""A comparison as plain text, at most 80 columns wide, without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from deepdraft.compare.best import best_of, frontier_of
from deepdraft.compare.comparison import ComparedPoint, Comparison
from deepdraft.compare.gate import GateResult
from deepdraft.compare.words import (
    FIGURE_TEXT,
    crossover_text,
    interval_text,
    ratio_text,
    run_text,
    value_text,
)
from deepdraft.records import Run
from deepdraft.units import tokens_text

_LEGEND = (
    "A, B: medians. B / A: quotient of geometric means (over pairs of trials where they alternated), with its 95 % "
    "interval. better, worse: 1 lies outside the interval. same to x: no difference larger than x, the interval "
    "reaches no further. shows: the smallest change that these repeats would find 4 times out of 5. ms/token is not "
    "ms/step."
)
_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def comparison_table(comparison: Comparison, labels: Sequence[str], width: int = 80) -> str:
    """The verdicts per point, the crossover, and what was not compared. labels: the two files."""
    parts = [_heading([comparison.before, comparison.after], labels, width)]
    if comparison.points:
        parts.append(_rows(comparison.points))
        parts.append(_reasons(comparison.points, width))
        concurrency = comparison.crossover_concurrency
        where = "" if concurrency in (None, 1) else f" (at {concurrency} requests in flight)"
        parts.append(_wrapped(f"crossover of ms/token{where}: {crossover_text(comparison)}.", width))
    else:
        parts.append("nothing could be compared")
    parts.append(_unpaired(comparison, width))
    parts.append("\n".join(_wrapped(f"note: {remark}", width) for remark in comparison.remarks))
    if comparison.points:
        parts.append(_wrapped(f"{_how(comparison)} {_LEGEND}", width))
    return "\n\n".join(part for part in parts if part) + "\n"


def best_table(runs: Sequence[Run], labels: Sequence[str], width: int = 80) -> str:
    """More than two configurations: the best per context length and figure, and the frontier."""
    lines = [_heading(runs, labels, width), "", "best per context length (as good for all that is known):"]
    for best in best_of(runs):
        tied = f" (or {', '.join(_NAMES[index] for index in best.tied)})" if best.tied else ""
        lines.append(
            f"{_place(best.context_len, best.concurrency):>10}  {FIGURE_TEXT[best.figure]:<9}"
            f"{_NAMES[best.run_index]}  {value_text(best.figure, best.value):>9}{tied}"
        )
    lines += ["", "frontier (no other is better in TTFT and ms/token, by medians):"]
    for frontier in frontier_of(runs):
        names = ", ".join(_NAMES[index] for index in frontier.run_indexes)
        lines.append(f"{_place(frontier.context_len, frontier.concurrency):>10}  {names}")
    return "\n".join(lines) + "\n"


def gate_table(results: Sequence[GateResult], width: int = 80) -> str:
    """The gate's answer: every limit that failed or can't be told, and how many passed."""
    states = [result.state for result in results]
    num_failed, num_open = states.count("fail"), states.count("cannot tell")
    answer = "FAIL" if num_failed else "no regression shown" if num_open or not results else "pass"
    lines = [f"gate: {answer} ({num_failed} failed, {states.count('pass')} passed, {num_open} can't be told)"]
    for result in results:
        if result.state != "pass":
            limit = f"{100 * result.limit_frac:g} %"
            text = (
                f"{result.state}: {_place(result.context_len, result.concurrency)} {FIGURE_TEXT[result.figure]}, "
                f"limit {limit}: {result.reason}"
            )
            lines.append(_wrapped(text, width, indent="  "))
    return "\n".join(lines) + "\n"


def _heading(runs: Sequence[Run], labels: Sequence[str], width: int) -> str:
    lines = [
        _wrapped(f"{name}: {label} ({run_text(run)})", width, hang="   ")
        for name, label, run in zip(_NAMES, labels, runs, strict=False)
    ]
    return "\n".join(lines)


def _rows(points: Sequence[ComparedPoint]) -> str:
    lines = [f"{'ctx':>9} {'':<9}{'A':>8}{'B':>8}{'B / A':>7}  {'95 % interval':<13}{'shows':>6}  verdict"]
    for point in points:
        place = _place(point.context_len, point.concurrency)
        for verdict in point.verdicts:
            if verdict.figure == "tokens_per_step" and verdict.before == verdict.after == 1:
                continue  # no drafter in either
            shown = verdict.ratio.minimum_detectable_frac
            text = verdict.text.replace("no difference larger than", "same to")
            lines.append(
                f"{place:>9} {FIGURE_TEXT[verdict.figure]:<9}"
                f"{value_text(verdict.figure, verdict.before):>8}{value_text(verdict.figure, verdict.after):>8}"
                f"{ratio_text(verdict.ratio.value):>7}  {interval_text(verdict):<13}"
                f"{_shown_text(shown):>6}  {text}"
            )
            place = ""
    return "\n".join(line.rstrip() for line in lines)


def _shown_text(frac: float | None) -> str:
    if frac is None:
        return "-"
    return "<1%" if frac < 0.01 else ">999%" if frac > 9.99 else f"{frac:.0%}"


def _reasons(points: Sequence[ComparedPoint], width: int) -> str:
    """Why what can't be told can't be: a line for each reason, with the figures and the places it holds at."""
    places: dict[tuple[str, str], list[str]] = {}
    for point in points:
        for verdict in point.verdicts:
            if verdict.reason is not None:
                key = FIGURE_TEXT[verdict.figure], verdict.reason
                places.setdefault(key, []).append(_place(point.context_len, point.concurrency))
    figures: dict[tuple[str, str], list[str]] = {}
    for (figure, reason), where in places.items():
        figures.setdefault((", ".join(where), reason), []).append(figure)
    return "\n".join(
        _wrapped(f"cannot tell {', '.join(names)} at {where}: {reason}", width, hang="  ")
        for (where, reason), names in figures.items()
    )


def _unpaired(comparison: Comparison, width: int) -> str:
    places: dict[str, list[str]] = {}
    for one in comparison.unpaired:
        places.setdefault(one.reason, []).append(_place(one.context_len, one.concurrency))
    return "\n".join(
        _wrapped(f"not compared: {', '.join(where)}: {reason}", width, hang="  ") for reason, where in places.items()
    )


def _how(comparison: Comparison) -> str:
    verdicts = [verdict for point in comparison.points for verdict in point.verdicts]
    num_paired = sum(verdict.is_interleaved for verdict in verdicts)
    if num_paired == len(verdicts):
        return "A and B alternated, so drift of the server cancels."
    if num_paired:
        return "A and B alternated in part; where they did not, drift of the server is not in the intervals."
    return "A and B did not alternate: drift of the server between them is not in the intervals."


def _place(context_len: int, concurrency: int) -> str:
    return tokens_text(context_len) + (f" x {concurrency}" if concurrency != 1 else "")


def _wrapped(text: str, width: int, *, indent: str = "", hang: str = "") -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent + hang,
        break_on_hyphens=False,
    )
