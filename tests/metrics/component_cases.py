"""Cases of components with figures that are easy to reckon with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from deepdraft.records.component import ComponentCase, ComponentHeader, ComponentRepeat, ComponentRun
from deepdraft.records.line import End


def case(
    seconds: Sequence[float] = (2.0, 4.0, 2.0),
    *,
    name: str = "a case",
    work: Mapping[str, float] | None = None,
    rates: Mapping[str, float] | None = None,
    peer_factors: Mapping[str, float] | None = None,
    facts: Mapping[str, Any] | None = None,
    **repeat: Any,
) -> ComponentCase:
    """peer_factors: how many times as long each peer takes."""
    return ComponentCase(
        name=name,
        facts=dict(facts or {}),
        work=dict({"copy": 8.0, "matmul": 3.0} if work is None else work),
        repeats=tuple(
            ComponentRepeat(
                seconds=each,
                rates=dict({"copy": 8.0, "matmul": 2.0} if rates is None else rates),
                peers_s={peer: factor * each for peer, factor in (peer_factors or {}).items()},
                **repeat,
            )
            for each in seconds
        ),
    )


def run(*cases: ComponentCase, component: Any = "kernels", **header: Any) -> ComponentRun:
    """A run that completed."""
    return ComponentRun(
        header=ComponentHeader(
            run_id="0123456789ab",
            created_at="2026-11-30T00:00:00.000+00:00",
            deepdraft_version="0.1.0",
            command_line=("deepdraft", "bench", component),
            component=component,
            **header,
        ),
        cases=cases,
        ends=(End(at_s=1.0, outcome="complete"),),
    )
