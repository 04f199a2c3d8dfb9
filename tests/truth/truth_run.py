"""Whole sweeps against servers of known truth, each request beside what really happened to it.

Shared by the tests of this folder. The machine that runs them may be busy, so tests compare with what the server
itself recorded, and `Swept.slip_s` says by how much the machine was late, server or client, at a point.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from deepdraft.errors import DeepdraftError
from deepdraft.guards import GuardReport, guards_of
from deepdraft.metrics import Point, points_of, token_times_s
from deepdraft.records import Measurement, Run, SweepSpec
from deepdraft.report import results_object, results_table
from deepdraft.selftest.check import swept
from deepdraft.simulate.clock import precise_loop
from deepdraft.simulate.process import RunningServer, running
from deepdraft.simulate.server import Server
from deepdraft.simulate.spec import Confounds, DialectName, Fault, Physics, SimulateSpec, Surface
from deepdraft.simulate.truth import RequestTruth, truths_from_json

QUICK = Physics(prefill_a_s=0.02, step_d_s=0.003)
"""20 ms to the first token, 3 ms a token."""
DRAFTED = replace(QUICK, step_d_s=0.009, committed_len_pattern=(1, 4, 2, 5))
"""The same with a drafter: 3 tokens a step on average."""
MACHINE_GUARDS = frozenset({"client_lag", "drift", "event_clock"})
"""Guards that speak rightly when the machine of the test is too busy."""
SLIPPED_S = 0.003
BUSY_LOAD = 0.75
"""Above this load a core our own loop may have been late at moments when no event was due."""
NUM_TRIES = 5
_START_LIMIT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Beside:
    """A request as measured, beside its truth. `sent_s` is on the server's clock."""

    measured: Measurement
    truth: RequestTruth
    sent_s: float

    @property
    def receipt_late_s(self) -> float:
        """How long the request waited to be read by the server, which no schedule of it knows."""
        return self.truth.received_s - self.sent_s

    @functools.cached_property
    def server_late_s(self) -> tuple[float, ...]:
        """How late each write of the server was, by its own schedule."""
        truth = self.truth
        num_with_first = truth.output_len - sum(step.committed_len for step in truth.steps)
        made = list(accumulate((step.committed_len for step in truth.steps), initial=num_with_first))
        dues_s = [truth.prefill_end_s or 0.0, *(step.end_s for step in truth.steps)]
        return tuple(
            write.time_s
            - next((due for due, num in zip(dues_s, made, strict=True) if num >= write.num_tokens), dues_s[-1])
            for write in truth.writes
        )

    @functools.cached_property
    def client_late_s(self) -> tuple[float, ...]:
        """How late the client's stamp of each write was; empty where events and writes can't be paired."""
        times_s = token_times_s(self.measured.trace)
        num_events = list(accumulate(write.num_events for write in self.truth.writes))
        if not times_s or num_events[-1:] != [len(times_s)]:
            return ()
        return tuple(
            self.sent_s + times_s[max(count, 1) - 1] - write.time_s
            for count, write in zip(num_events, self.truth.writes, strict=True)
        )

    @property
    def first_late_s(self) -> float:
        """How late the first token was by all of it together: receipt, write, stamp."""
        return self.receipt_late_s + self.server_late_s[0] + sum(self.client_late_s[:1])

    @property
    def span_late_s(self) -> float:
        """By how much the time from the first token to the last is off, whoever was late."""
        return sum(abs(late_s[-1] - late_s[0]) for late_s in (self.server_late_s, self.client_late_s) if late_s)

    @property
    def late_s(self) -> float:
        """How late anything was, at worst."""
        return max(self.receipt_late_s, *self.server_late_s, *self.client_late_s)


@dataclass(frozen=True, kw_only=True)
class Swept:
    """A sweep and the truth about it."""

    simulated: SimulateSpec
    run: Run
    problem: DeepdraftError | None
    truths: tuple[RequestTruth, ...]
    load_per_core: float = 0.0
    """What the machine said of its load when the sweep ended."""

    @functools.cached_property
    def points(self) -> tuple[Point, ...]:
        return points_of(self.run)

    @property
    def point(self) -> Point:
        """The only point."""
        (point,) = self.points
        return point

    @functools.cached_property
    def object(self) -> dict[str, Any]:
        """What `deepdraft show --json` prints."""
        return results_object(self.run)

    @functools.cached_property
    def table(self) -> str:
        return results_table(self.run)

    @functools.cached_property
    def besides(self) -> tuple[Beside, ...]:
        """The measured requests that succeeded, no warm-ups, in the order they were sent."""
        wanted = [one for one in self.run.measurements if one.failure is None and not one.is_warmup]
        by_time = sorted(self.truths, key=lambda truth: truth.received_s)
        longest = max(one.max_tokens for one in wanted)
        sent = [one.started_at_s for one in self.run.measurements if one.max_tokens == longest]
        # The last requests for so many tokens are the measured ones: they tie the sweep's clock to the server's.
        firsts = [truth.received_s for truth in by_time if truth.max_tokens == longest][-len(sent) :]
        origin_s = min(at_s - sent_at_s for at_s, sent_at_s in zip(firsts, sorted(sent), strict=True))
        found = []
        for one in sorted(wanted, key=lambda one: one.started_at_s):
            sent_s = origin_s + one.started_at_s
            truth = min(by_time, key=lambda truth: abs(truth.received_s - sent_s))
            assert truth.max_tokens == one.max_tokens
            by_time.remove(truth)
            found.append(Beside(measured=one, truth=truth, sent_s=sent_s))
        return tuple(found)

    def besides_of(self, point: Point) -> list[Beside]:
        """The requests of one point."""
        trials = {trial.trial_id for trial in point.trials}
        return [beside for beside in self.besides if beside.measured.trial_id in trials]

    @property
    def is_busy(self) -> bool:
        """Whether the machine had enough else to do to be late at any moment: by what it says of itself, or as the
        server's writes show, which another process makes (no load average tells of a CPU that the host took away)."""
        slipped = any(late_s >= SLIPPED_S for beside in self.besides for late_s in beside.server_late_s)
        return self.load_per_core > BUSY_LOAD or slipped

    def slip_s(self, point: Point) -> float:
        """By how much the machine was late while this point was measured, at worst: server or client."""
        return max(beside.late_s for beside in self.besides_of(point))

    def guards(self, point: Point | None = None) -> dict[str, GuardReport]:
        """The guards' answers for a point (the only one when none is named)."""
        reports = guards_of(self.run, point or self.point, self.points)
        return {report.name: report for report in reports}

    def violated(self) -> list[tuple[Point, GuardReport]]:
        """Every violated guard at every point."""
        return [
            (point, report)
            for point in self.points
            for report in self.guards(point).values()
            if report.state == "violated"
        ]

    def unexcused(self) -> list[str]:
        """Violated guards that a busy machine does not explain."""
        return [
            f"{point.context_len}: {report.name}: {report.evidence}"
            for point, report in self.violated()
            if not (report.name in MACHINE_GUARDS and self.slip_s(point) >= SLIPPED_S)
            and not (report.name == "client_lag" and self.is_busy)
        ]

    def median(self, name: str) -> float:
        """The median of a figure at the only point; it must be known."""
        brief = self.point.summary(name)
        assert brief is not None, f"{name} is not known"
        return brief.median

    def marks(self, name: str) -> dict[str, list[str]]:
        """What `results_object` says against a figure of the only point."""
        (point,) = self.object["points"]
        return dict(point["in_doubt"].get(name, {"violated": [], "not_verifiable": []}))


@dataclass(frozen=True, kw_only=True)
class Hosted:
    """A server of known truth in a thread of this process: starts at once, keeps its times less well."""

    url: str
    spec: SimulateSpec

    def truths(self, *, reset: bool = False) -> list[RequestTruth]:
        with urllib.request.urlopen(f"{self.url}/_truth{'?reset=1' if reset else ''}") as answer:
            return truths_from_json(answer.read())


@contextlib.contextmanager
def hosted(simulated: SimulateSpec) -> Iterator[Hosted]:
    """Run a server in a thread for the block."""
    loop = precise_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = Server(simulated)
    try:
        url = asyncio.run_coroutine_threadsafe(server.start(), loop).result(_START_LIMIT_S)
        yield Hosted(url=url, spec=simulated)
    finally:
        asyncio.run_coroutine_threadsafe(server.stop(), loop).result(_START_LIMIT_S)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_START_LIMIT_S)
        loop.close()


def sweep(simulated: SimulateSpec, spec: SweepSpec) -> Swept:
    """Run one sweep against a server in a process of its own, for tests that look at times."""
    with running(simulated) as server:
        return sweep_of(server, spec)


def untimed(simulated: SimulateSpec, spec: SweepSpec) -> Swept:
    """Run one sweep against a server in this process, for tests that look at everything but times."""
    with hosted(simulated) as server:
        return sweep_of(server, spec)


def sweep_of(server: RunningServer | Hosted, spec: SweepSpec) -> Swept:
    """Run a sweep against a server that runs already."""
    server.truths(reset=True)
    run, problem = swept(server, spec)  # type: ignore[arg-type]  # of the server it reads the URL alone
    return Swept(
        simulated=server.spec,
        run=run,
        problem=problem,
        truths=tuple(server.truths()),
        load_per_core=os.getloadavg()[0] / (os.cpu_count() or 1),
    )


def quiet(make: Callable[[], Swept], is_good: Callable[[Swept], bool]) -> Swept:
    """The first of a few sweeps that is good, else the last: a neighbour on the machine is no fault of ours."""
    for _ in range(NUM_TRIES - 1):
        made = make()
        if is_good(made):
            return made
    return make()


def sweep_spec(*context_lens: int, **fields: Any) -> SweepSpec:
    """A short sweep: one point of 400 tokens, 32 tokens generated, once, without a warm-up, unless told otherwise."""
    fields = {"num_repeats": 1, "num_warmups": 0, "decode_len": 32, "endpoint": "chat"} | fields
    return SweepSpec(url="simulated", context_lens=context_lens or (400,), **fields)


def server_spec(
    dialect: DialectName = "vllm",
    physics: Physics = QUICK,
    *,
    faults: Iterable[Fault] = (),
    surface: Surface | None = None,
    **confounds: Any,
) -> SimulateSpec:
    """A server that is quick, with confounds by name."""
    return SimulateSpec(
        dialect=dialect,
        physics=physics,
        confounds=Confounds(**confounds),
        faults=tuple(faults),
        surface=surface or Surface(),
    )
