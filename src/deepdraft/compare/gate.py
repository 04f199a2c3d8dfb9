"""`--gate tpot=5%,ttft=10%`: is there a regression beyond the limit that the data support? For CI.

fail          the whole interval of the ratio lies beyond the limit
pass          the whole interval lies within it
cannot tell   neither: more repeats would tell. It fails no build, since nothing shows a regression
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from deepdraft.compare.comparison import ComparedPoint
from deepdraft.compare.verdict import FIGURES, Verdict
from deepdraft.errors import UsageError

_LIMIT = re.compile(r"^\s*([a-z_]+)\s*=\s*(\d+(?:\.\d+)?)\s*%\s*$")
_HINT = "write --gate tpot=5%,ttft=10%"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateLimit:
    """How much worse a figure may be."""

    figure: str
    limit_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GateResult:
    """One limit at one point."""

    context_len: int
    concurrency: int
    figure: str
    limit_frac: float
    state: Literal["pass", "fail", "cannot tell"]
    reason: str


def gate_limits(text: str) -> tuple[GateLimit, ...]:
    """Read `tpot=5%,ttft=10%`. Figures with or without their unit: tpot or tpot_s.

    Raises UsageError for what is no limit, or a figure that is not compared.
    """
    limits = []
    names = {short: figure for figure in FIGURES for short in (figure, figure.removesuffix("_s"))}
    for part in text.split(","):
        match = _LIMIT.match(part)
        if match is None:
            raise UsageError(f"--gate: not a limit: {part.strip()!r}", hint=_HINT)
        if match[1] not in names:
            known = ", ".join(figure.removesuffix("_s") for figure in FIGURES)
            raise UsageError(f"--gate: no such figure: {match[1]!r}", hint=f"figures: {known}")
        limits.append(GateLimit(figure=names[match[1]], limit_frac=float(match[2]) / 100))
    return tuple(limits)


def gate_results(points: Sequence[ComparedPoint], limits: Sequence[GateLimit]) -> tuple[GateResult, ...]:
    """Every limit at every point that was compared."""
    return tuple(_result(point, limit) for point in points for limit in limits)


def _result(point: ComparedPoint, limit: GateLimit) -> GateResult:
    verdict = point.verdict(limit.figure)
    state, reason = _state(verdict, limit)
    return GateResult(
        context_len=point.context_len,
        concurrency=point.concurrency,
        figure=limit.figure,
        limit_frac=limit.limit_frac,
        state=state,
        reason=reason,
    )


def _state(verdict: Verdict | None, limit: GateLimit) -> tuple[Literal["pass", "fail", "cannot tell"], str]:
    if verdict is None:
        return "cannot tell", "not measured in both"
    ratio = verdict.ratio
    if verdict.is_in_doubt:
        return "cannot tell", verdict.reason or "in doubt"
    if ratio.minimum_detectable_frac is None or ratio.interval is None:
        return "cannot tell", "single values: the noise is not known"
    low, high = ratio.interval.low, ratio.interval.high
    least, most = (1 / high - 1, 1 / low - 1) if verdict.is_more_better else (low - 1, high - 1)
    worse = f"worse by {least:+.1%} to {most:+.1%}"
    if least > limit.limit_frac:
        return "fail", worse
    return ("pass", worse) if most <= limit.limit_frac else ("cannot tell", f"{worse}: more repeats would tell")
