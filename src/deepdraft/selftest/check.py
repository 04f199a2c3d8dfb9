"""What a check is, and how one sweep against a simulated server is run for it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from deepdraft.bench.progress import Progress
from deepdraft.bench.sweep import sweep
from deepdraft.errors import DeepdraftError
from deepdraft.records import Run, SweepSpec
from deepdraft.simulate.process import RunningServer
from deepdraft.transport.tls import TlsOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Error:
    """One error of ours beside its target."""

    name: str
    value: float | None
    """None: the figure is missing, which is a miss."""
    target: float
    """At most this, unless `is_floor`: then at least this."""
    unit: str
    is_floor: bool = False
    note: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the target is met."""
        if self.value is None:
            return False
        return self.value >= self.target if self.is_floor else abs(self.value) <= self.target


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A named check; `run` gives its errors, given the number of requests."""

    name: str
    about: str
    run: Callable[[int], tuple[Error, ...]]


def swept(server: RunningServer, spec: SweepSpec) -> tuple[Run, DeepdraftError | None]:
    """Run a sweep against the server, silently, into a file that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="deepdraft-selftest-") as folder:
        outcome = asyncio.run(
            sweep(
                spec,
                url=server.url,
                path=Path(folder) / "selftest.jsonl",
                is_resumed=False,
                headers={},
                admin_headers={},
                tls=TlsOptions(),
                progress=Progress(num_trials=0, stream=None),
                command_line=("deepdraft", "selftest"),
            )
        )
    if outcome.run is None:
        assert outcome.problem is not None
        raise outcome.problem
    return outcome.run, outcome.problem
