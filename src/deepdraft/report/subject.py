"""A run under the name that a report calls it by, with its points in curves.

Points make one curve when they had the same concurrency and the same workload; else unlike things would be joined.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from deepdraft.records import Run
from deepdraft.report.row import Row, have_concurrency, rows_of


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One run of a report."""

    name: str
    run: Run

    @cached_property
    def rows(self) -> list[Row]:
        """Its points with their doubts."""
        return rows_of(self.run)

    @cached_property
    def curves(self) -> tuple[Curve, ...]:
        """Its points in curves, the one with most points first."""
        groups: dict[tuple[int, str | None], list[Row]] = {}
        for row in self.rows:
            if row.point.figures:
                workload = row.point.reported.workload if row.point.reported is not None else None
                groups.setdefault((row.point.concurrency, workload), []).append(row)
        workloads = {workload for _, workload in groups}
        has_concurrency = have_concurrency(self.rows)
        curves = [
            Curve(
                name=_name(concurrency if has_concurrency else None, workload if len(workloads) > 1 else None),
                concurrency=concurrency,
                rows=tuple(sorted(rows, key=lambda row: row.point.context_len)),
            )
            for (concurrency, workload), rows in groups.items()
        ]
        return tuple(sorted(curves, key=lambda curve: (-len(curve.rows), curve.concurrency)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """Points that may be joined by a line."""

    name: str
    """What tells it from the run's other curves; empty for the only one."""
    concurrency: int
    rows: tuple[Row, ...]


def _name(concurrency: int | None, workload: str | None) -> str:
    parts = [f"{concurrency} streams" if concurrency != 1 else "1 stream"] if concurrency is not None else []
    return ", ".join([*parts, *([f"text: {workload}"] if workload else [])])
