"""Which points of two runs may be compared: those that asked the same thing. Each that may not is named with why."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from deepdraft.metrics import Point, points_of
from deepdraft.records import Run, SweepSpec

_MAX_LEN_DIFFERENCE = 0.02
"""Of actual lengths: tokenizers that differ, or a label that is not the length."""
_ALIKE = {
    "method": "method",
    "text": "text",
    "keep_cache": "keep_cache",
    "temperature": "temperature",
    "arrival": "arrival",
    "num_requests": "requests a repeat",
}
"""Fields of the spec that must agree: they decide what is asked of the server at every point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointPair:
    """The same question, put to both."""

    before: Point
    after: Point

    @property
    def context_len(self) -> int:
        """The baseline's actual length."""
        return self.before.context_len

    @property
    def concurrency(self) -> int:
        """Requests in flight, of both."""
        return self.before.concurrency


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpaired:
    """A point of either run that has no counterpart, or none that is like it."""

    context_len: int
    """As asked."""
    concurrency: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pairing:
    """The pairs by context length and concurrency, what has none, and what a reader should know."""

    pairs: tuple[PointPair, ...]
    unpaired: tuple[Unpaired, ...]
    remarks: tuple[str, ...]


def pairing(before: Run, after: Run) -> Pairing:
    """Pair the points of two runs."""
    sides = [_by_question(run) for run in (before, after)]
    refusal = _unlike(before, after)
    pairs: list[PointPair] = []
    unpaired: list[Unpaired] = []
    for key in sorted({*sides[0], *sides[1]}):
        found = [side.get(key, []) for side in sides]
        reason = refusal or _unlike_points(found, before, after)
        if reason is None:
            pairs.append(PointPair(before=found[0][0], after=found[1][0]))
        else:
            unpaired.append(Unpaired(context_len=key[0], concurrency=key[1], reason=reason))
    return Pairing(pairs=tuple(pairs), unpaired=tuple(unpaired), remarks=_remarks(before, after))


def _by_question(run: Run) -> dict[tuple[int, int], list[Point]]:
    """The points with figures, by what was asked."""
    points: dict[tuple[int, int], list[Point]] = defaultdict(list)
    for point in points_of(run):
        if point.num_samples:
            points[point.key].append(point)
    return points


def _unlike(before: Run, after: Run) -> str | None:
    """Why no point of the two can be compared; None when they can."""
    if before.header.source is not None or after.header.source is not None:
        return None  # what a foreign tool asked is not told by our own spec
    first, second = before.header.spec, after.header.spec
    for name, words in _ALIKE.items():
        values = getattr(first, name), getattr(second, name)
        if values[0] != values[1]:
            return f"A and B differ in {words}: {values[0]} and {values[1]}"
    return None


def _unlike_points(found: Sequence[list[Point]], before: Run, after: Run) -> str | None:
    first, second = found
    if not first or not second:
        return f"only in {'B' if second else 'A'}"
    if len(first) > 1 or len(second) > 1:
        name, points = ("A", first) if len(first) > 1 else ("B", second)
        return f"{len(points)} points of that length in {name}: which one is meant can't be told"
    (one,), (other,) = first, second
    longer, shorter = max(one.context_len, other.context_len), min(one.context_len, other.context_len)
    if longer > (1 + _MAX_LEN_DIFFERENCE) * shorter:
        return f"the actual lengths differ: {one.context_len:,} and {other.context_len:,} tokens"
    lens = _decode_len(one, before.header.spec), _decode_len(other, after.header.spec)
    if None not in lens and lens[0] != lens[1]:
        return f"the answers' lengths differ: {lens[0]} and {lens[1]} tokens asked"
    if one.reported is not None or other.reported is not None:
        return _unlike_reports(one, other)
    return None


def _decode_len(point: Point, spec: SweepSpec) -> int | None:
    """Output tokens asked a request; None where that is not said."""
    if point.reported is not None:
        return point.reported.decode_len
    asked = {request.max_tokens for trial in point.trials for request in trial.measured}
    return max(asked) if asked else spec.decode_len


def _unlike_reports(one: Point, other: Point) -> str | None:
    """What the sources of reported points say of their prompts."""
    first, second = one.reported, other.reported
    workloads = {report.workload for report in (first, second) if report is not None and report.workload}
    if len(workloads) > 1:
        return f"the workloads differ: {' and '.join(sorted(workloads))}"
    colds = {report.is_cold for report in (first, second) if report is not None and report.is_cold is not None}
    if len(colds) > 1:
        return "one was measured with its prompt in the prefix cache, the other cold"
    return None


def _remarks(before: Run, after: Run) -> tuple[str, ...]:
    """Differences that don't forbid a comparison and may explain it."""
    first, second = before.header, after.header
    remarks = []
    if first.run_id == second.run_id:
        remarks.append("A and B are the same run")
    if first.capabilities.model != second.capabilities.model:
        models = f"{first.capabilities.model or 'not named'} and {second.capabilities.model or 'not named'}"
        remarks.append(f"the models' names differ: {models}; lengths are in each one's own tokens")
    if first.source is None and second.source is None and first.spec.seed != second.spec.seed:
        remarks.append("the seeds differ, so the prompts do")
    if first.spec.device and second.spec.device and first.spec.device != second.spec.device:
        remarks.append(f"the devices differ: {first.spec.device} and {second.spec.device}")
    return tuple(remarks)
