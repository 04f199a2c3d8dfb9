"""Runs a client as a whole process and says what it cost: wall time, and CPU time of it and all its children.

CPU comes from the kernel's own account: what wait4 returns when the process has ended, and, for moments before
that, the CPU clocks of the process and its descendants, read every few milliseconds. Linux only.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SAMPLE_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A process that has ended. Times are seconds of time.monotonic."""

    exit_code: int
    """Negative: killed by this signal."""
    stdout: str
    stderr: str
    started_at: float
    ended_at: float
    cpu_s: float
    """User and system time of the process and all descendants it waited for."""
    cpu_samples: tuple[tuple[float, float], ...]
    """(time, CPU seconds used until then by the process and its living descendants)"""

    @property
    def wall_s(self) -> float:
        """Start to end."""
        return self.ended_at - self.started_at

    def cpu_before_s(self, at: float) -> float:
        """CPU time used until a moment, interpolated between samples."""
        times = [sample_at for sample_at, _ in self.cpu_samples]
        place = bisect_left(times, at)
        if place == 0:
            return self.cpu_samples[0][1] if self.cpu_samples else 0.0
        if place == len(times):
            return self.cpu_samples[-1][1]
        (from_at, from_s), (to_at, to_s) = self.cpu_samples[place - 1], self.cpu_samples[place]
        return from_s + (to_s - from_s) * (at - from_at) / (to_at - from_at)


def finished(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None, folder: Path, limit_s: float
) -> Finished:
    """Run a command in a folder until it ends; after `limit_s` it is killed, with its process group."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        started_at = time.monotonic()
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=folder,
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        samples: list[tuple[float, float]] = []
        over = threading.Event()
        sampler = threading.Thread(target=_sample, args=(child.pid, samples, over))
        sampler.start()
        overdue = threading.Timer(limit_s, _kill_group, args=(child.pid,))
        overdue.start()
        try:
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:
            _kill_group(child.pid)
            raise
        finally:
            ended_at = time.monotonic()
            overdue.cancel()
            over.set()
            sampler.join()
        child.returncode = os.waitstatus_to_exitcode(status)  # it is reaped already: tell Popen
        out.seek(0)
        err.seek(0)
        return Finished(
            exit_code=child.returncode,
            stdout=out.read().decode(errors="replace"),
            stderr=err.read().decode(errors="replace"),
            started_at=started_at,
            ended_at=ended_at,
            cpu_s=usage.ru_utime + usage.ru_stime,
            cpu_samples=tuple(samples),
        )


def process_cpu_s(pid: int) -> float:
    """CPU seconds of all threads of a living process. Raises OSError when it is gone."""
    # Linux: the clock of another process is the complement of its id above three bits, 2 for the scheduler's account.
    return time.clock_gettime((~pid << 3) | 2)


def _sample(pid: int, samples: list[tuple[float, float]], over: threading.Event) -> None:
    while not over.wait(_SAMPLE_S):
        total_s = 0.0
        try:
            for each in _tree(pid):
                total_s += process_cpu_s(each)
        except OSError:  # one of them ended just now
            continue
        samples.append((time.monotonic(), total_s))


def _tree(pid: int) -> list[int]:
    """A process and its descendants."""
    tree = [pid]
    for each in tree:
        for task in Path(f"/proc/{each}/task").iterdir():
            tree += map(int, (task / "children").read_text().split())
    return tree


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
