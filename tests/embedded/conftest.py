"""Sweeps of an embedded server in this process, and what its results say."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from deepdraft.bench.progress import Progress
from deepdraft.bench.sweep import sweep
from deepdraft.guards import guards_of
from deepdraft.metrics import points_of
from deepdraft.records import Measurement, Run, SweepSpec
from deepdraft.transport.tls import TlsOptions

Swept = Callable[[str, Path, SweepSpec], Run]


def swept(url: str, path: Path, spec: SweepSpec) -> Run:
    """The results of a sweep that must not fail."""
    outcome = asyncio.run(
        sweep(
            spec,
            url=url,
            path=path,
            is_resumed=False,
            headers={},
            admin_headers={},
            tls=TlsOptions(),
            progress=Progress(num_trials=0, stream=None),
            command_line=("deepdraft", "sweep"),
        )
    )
    assert outcome.problem is None
    assert outcome.run is not None
    return outcome.run


class Judged:
    """What a run says; importlib mode has no imports between test files."""

    swept = staticmethod(swept)

    @staticmethod
    def states(run: Run, name: str) -> list[str]:
        """A guard's states, point by point."""
        return [report.state for point in points_of(run) for report in guards_of(run, point) if report.name == name]

    @staticmethod
    def measured(run: Run) -> list[Measurement]:
        """The requests without the warm-ups."""
        return [each for each in run.measurements if not each.is_warmup]


@pytest.fixture(scope="session")
def judged() -> type[Judged]:
    return Judged
