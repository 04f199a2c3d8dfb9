"""The comparison of two runs of a component as plain text, at most 80 columns wide, and as one JSON object."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from deepdraft.compare.component import ComparedCase, ComponentComparison
from deepdraft.compare.words import ratio_text
from deepdraft.stats import Summary
from deepdraft.stats.interval import Interval
from deepdraft.stats.ratio import RatioEstimate
from deepdraft.units import seconds_text

COMPONENT_COMPARISON_SCHEMA_VERSION = 1
_NAMES = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LEGEND = (
    "A, B: median times. B / A: quotient of geometric means with its 95 % interval. in yardsticks: the same in units "
    "of the ceiling (or of the peer in brackets) that each run measured beside itself, so that a machine that became "
    "faster or slower cancels. faster, slower: both intervals lie on that side of 1, and not within 2 % of it. A "
    "peer's line: its time over this one's in A and in B, paired. The two runs were not interleaved with each other."
)


def component_comparison_table(comparison: ComponentComparison, labels: Sequence[str], width: int = 80) -> str:
    """Case by case. labels: the two files."""
    component = comparison.before.header.component
    heading = "\n".join(f"{name}: {label} (bench {component})" for name, label in zip(_NAMES, labels, strict=False))
    parts = [heading]
    if comparison.cases:
        parts.append("\n".join([_head(), *map(_lines, comparison.cases)]))
    else:
        parts.append("nothing could be compared")
    parts.append("\n".join(_wrapped(f"not compared: {name}: {why}", width) for name, why in comparison.not_compared))
    if comparison.cases:
        parts.append(_wrapped(_LEGEND, width))
    return "\n\n".join(part for part in parts if part) + "\n"


def component_comparison_object(comparisons: Sequence[ComponentComparison], labels: Sequence[str]) -> dict[str, Any]:
    """Of every other run with the first, one after the other."""
    return {
        "schema_version": COMPONENT_COMPARISON_SCHEMA_VERSION,
        "component": comparisons[0].before.header.component,
        "files": list(labels),
        "comparisons": [
            {
                "cases": [_case(case) for case in comparison.cases],
                "not_compared": [{"name": name, "reason": reason} for name, reason in comparison.not_compared],
            }
            for comparison in comparisons
        ],
    }


def _head() -> str:
    return f"{'A':>11} {'B':>10} {'B / A':>7}  {'95 % interval':<14}{'in yardsticks':<24}"


def _lines(case: ComparedCase) -> str:
    against = "" if case.in_yardsticks is None else _with_interval(case.in_yardsticks)
    figures = (
        f"{_seconds(case.before):>11} {_seconds(case.after):>10} {ratio_text(case.ratio.value):>7}  "
        f"{_interval(case.ratio.interval):<14}{against:<22} "
    )
    peer = f" ({case.yardstick})" if case.yardstick not in (None, "ceiling") else ""
    lines = [case.name, figures.rstrip() + peer]
    lines.append(_wrapped(case.answer + ("" if case.reason is None else f": {case.reason}"), 80, indent="    "))
    lines += [
        _wrapped(f"{name}: A {_with_interval(before)}, B {_with_interval(after)}", 80, indent="    ")
        for name, (before, after) in case.peers.items()
    ]
    return "\n".join(lines)


def _seconds(found: Summary) -> str:
    return f"{found.median * 1e6:.3g} us" if found.median < 1e-3 else seconds_text(found.median)


def _with_interval(ratio: RatioEstimate) -> str:
    return f"{ratio_text(ratio.value)} [{_interval(ratio.interval)}]"


def _interval(interval: Interval | None) -> str:
    return "-" if interval is None else f"{ratio_text(interval.low)} - {ratio_text(interval.high)}"


def _case(case: ComparedCase) -> dict[str, Any]:
    return {
        "name": case.name,
        "before_s": asdict(case.before),
        "after_s": asdict(case.after),
        "ratio": asdict(case.ratio),
        "yardstick": case.yardstick,
        "in_yardsticks": None if case.in_yardsticks is None else asdict(case.in_yardsticks),
        "peers": {name: {"before": asdict(one), "after": asdict(other)} for name, (one, other) in case.peers.items()},
        "answer": case.answer,
        "reason": case.reason,
    }


def _wrapped(text: str, width: int, *, indent: str = "") -> str:
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
