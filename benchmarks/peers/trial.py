"""One run of one client on one server, with the server's own account of what happened."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deepdraft.simulate import truth as server
from deepdraft.simulate.process import RunningServer
from deepdraft.simulate.truth import RequestTruth

from .client import Client, Latency, Reported, Task, latency
from .process import Finished, finished

_LIMIT_S = 180.0


class NothingSent(Exception):
    """A client ended without a request of its task; the message has its last words."""


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What the client said, what it cost, and what was true."""

    run: Finished
    reported: Reported | None
    """None: it gave no results; `problem` says how that looked."""
    problem: str | None
    truths: tuple[RequestTruth, ...]
    """The requests of the task, the client's own warm-ups and probes left out."""
    cached_frac: float
    """Prompt tokens of the task's requests that the server took from its prefix cache."""

    @property
    def ttft(self) -> Latency | None:
        """The truth, over the requests that were answered in full."""
        return latency([server.ttft_s(truth) for truth in self.good])

    @property
    def tpot(self) -> Latency | None:
        """The truth, over the requests that were answered in full."""
        return latency([server.tpot_s(truth) for truth in self.good])

    @property
    def good(self) -> list[RequestTruth]:
        """The requests that no fault struck."""
        return [truth for truth in self.truths if truth.fault is None]

    @property
    def num_events(self) -> int:
        """Token-carrying events that the server wrote."""
        return sum(write.num_events for truth in self.truths for write in truth.writes)

    @property
    def streams_s(self) -> float:
        """From the first request's receipt to the last byte of the last answer."""
        ends = [truth.end_s for truth in self.truths if truth.end_s is not None]
        return max(ends) - min(truth.received_s for truth in self.truths)

    @property
    def cpu_in_streams_s(self) -> float:
        """CPU of the client from the server's receipt of the task's first request to its last write of a token."""
        last_at = max(truth.writes[-1].time_s for truth in self.truths if truth.writes)
        return self.run.cpu_before_s(last_at) - self._cpu_before_requests_s

    @property
    def cpu_to_end_s(self) -> float:
        """CPU of the client from the server's receipt of the task's first request to the client's end."""
        return self.run.cpu_s - self._cpu_before_requests_s

    @property
    def _cpu_before_requests_s(self) -> float:
        return self.run.cpu_before_s(min(truth.received_s for truth in self.truths))


def measured(client: Client, simulated: RunningServer, task: Task) -> Trial:
    """Run the client to its end. Raises NothingSent when the server saw no request of the task."""
    simulated.truths(reset=True)
    run = finished(client.command(task), environment=client.environment(task), folder=task.folder, limit_s=_LIMIT_S)
    truths = _of_task(simulated.truths(reset=True), task)
    reported, problem = None, None
    try:
        reported = client.reported(task, run)
    except (OSError, ValueError, LookupError) as error:
        problem = f"exit {run.exit_code}, no results ({type(error).__name__}): {_last_line(run)}"
    if not truths:
        raise NothingSent(f"{client.name}: {problem or _last_line(run)}")
    num_prompt = sum(truth.prompt_len or 0 for truth in truths)
    num_cached = sum(truth.cached_len or 0 for truth in truths)
    return Trial(
        run=run,
        reported=reported,
        problem=problem,
        truths=truths,
        cached_frac=num_cached / num_prompt if num_prompt else 0.0,
    )


@contextmanager
def empty_folder() -> Iterator[Path]:
    """A folder for one run."""
    with tempfile.TemporaryDirectory(prefix="peers-") as name:
        yield Path(name)


def installed(clients: Sequence[Client]) -> Iterator[tuple[Client, str]]:
    """The clients that are installed, with their versions; the others are named on standard error."""
    for client in clients:
        try:
            version = client.version()
        except (OSError, subprocess.CalledProcessError):
            print(f"left out: {client.name} is not installed (benchmarks/peers/setup.sh)", file=sys.stderr)
        else:
            yield client, version


def _of_task(truths: list[RequestTruth], task: Task) -> tuple[RequestTruth, ...]:
    """The last requests of the task's length: warm-ups of the same length come before them."""
    same = [truth for truth in truths if truth.is_stream and truth.max_tokens == task.decode_len]
    return tuple(sorted(same, key=lambda truth: truth.ordinal)[-task.num_requests :])


def _last_line(run: Finished) -> str:
    lines = [line for line in (run.stdout + "\n" + run.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line or "error" in line]
    return (errors or lines or ["it said nothing"])[-1].strip()[:160]
