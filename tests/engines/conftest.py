"""Real engines for the opt-in tests: starts one server at a time, and runs the command line against it.

The variable DEEPDRAFT_ENGINES names the folder that setup_*.sh filled; without it every test here is skipped.
Speeds are never judged here: the machine may be busy. Counts, acceptance and what the guards say are exact.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from deepdraft.adapters.adapter import Adapter
from deepdraft.adapters.detect import detect
from deepdraft.records import Measurement, Run, Trial
from deepdraft.records.file import read_run
from deepdraft.transport.client import Client
from deepdraft.transport.endpoint import endpoint

T = TypeVar("T")
SCRIPTS = Path(__file__).parent
VARIABLE = "DEEPDRAFT_ENGINES"
READY_LIMIT_S = 300.0
END_LIMIT_S = 30.0
COMMAND_LIMIT_S = 600.0


@dataclass(frozen=True)
class Sweep:
    """One `deepdraft sweep`: its exit code, the object it printed, and its results file."""

    exit_code: int
    facts: dict[str, Any]
    run: Run

    @property
    def points(self) -> list[dict[str, Any]]:
        return list(self.facts["points"])

    @property
    def requests(self) -> list[Measurement]:
        """The measured requests, warm-ups left out."""
        return [line for line in self.run.measurements if not line.is_warmup]

    @property
    def trials(self) -> list[Trial]:
        return [line for line in self.run.trials if not line.is_warmup]

    def guard(self, name: str) -> list[tuple[str, str]]:
        """State and evidence of a guard at each point."""
        return [
            (guard["state"], guard["evidence"])
            for point in self.points
            for guard in point["guards"]
            if guard["name"] == name
        ]

    def states(self, name: str) -> set[str]:
        return {state for state, _ in self.guard(name)}


@dataclass
class Engine:
    """A running server, and what a test does with it."""

    url: str
    folder: Path
    log: Path
    num_sweeps: int = field(default=0)

    def get(self, path: str) -> Any:
        """The JSON (else the text) of a GET, past all of Deepdraft: what the server itself says."""
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            body = answer.read()
        try:
            return json.loads(body)
        except ValueError:
            return body.decode()

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `deepdraft`."""
        return subprocess.run(
            [sys.executable, "-m", "deepdraft", *words],
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT_S,
            check=False,
        )

    def servers(self, *flags: str) -> dict[str, str]:
        """The lines of `deepdraft servers` by name; wrapped lines and several notes are joined."""
        done = self.command("servers", self.url, *flags)
        assert done.returncode == 0, done.stderr
        found: dict[str, str] = {}
        name = ""
        for line in done.stdout.splitlines():
            first, _, value = line.partition("  ")
            name = first or name
            found[name] = f"{found.get(name, '')} {value.strip()}".strip()
        return found

    def sweep(self, *flags: str) -> Sweep:
        """Run `deepdraft sweep` into a file of its own."""
        self.num_sweeps += 1
        path = self.folder / f"{self.num_sweeps}.jsonl"
        done = self.command("sweep", self.url, *flags, "--quiet", "--json", "--out", str(path))
        assert done.stdout, done.stderr
        return Sweep(exit_code=done.returncode, facts=json.loads(done.stdout), run=read_run(path))

    def ask(self, use: Callable[[Adapter], Awaitable[T]], **options: Any) -> T:
        """What a settled adapter answers."""

        async def work() -> T:
            async with Client(endpoint(self.url)) as client:
                adapter = await detect(client, **options)
                await adapter.settle()
                return await use(adapter)

        return asyncio.run(work())


Start = Callable[..., contextlib.AbstractContextManager[Engine]]


@pytest.fixture(scope="session")
def engines_folder() -> Path:
    """The folder with the engines that were set up."""
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(f"{VARIABLE} does not name a folder that tests/engines/setup_*.sh filled")
    folder = Path(named)
    if not (folder / "tiny-llama" / "model.safetensors").is_file():
        pytest.skip(f"{folder} holds no model: run tests/engines/setup_*.sh {folder}")
    return folder


@pytest.fixture(scope="session")
def start(engines_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """Starts an engine by its serve script; skips when the engine was not set up."""

    @contextlib.contextmanager
    def running(name: str, *flags: str, **environment: str) -> Iterator[Engine]:
        if not (engines_folder / name / "bin" / "python").exists():
            pytest.skip(f"{name} is not set up: run tests/engines/setup_{name}.sh {engines_folder}")
        folder = tmp_path_factory.mktemp(name)
        port = _free_port()
        log = folder / "server.log"
        words = ["nice", "-n", "5", "bash", str(SCRIPTS / f"serve_{name}.sh"), str(engines_folder), str(port), *flags]
        with log.open("wb") as output:
            child = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | environment,
                start_new_session=True,  # an engine is several processes: they end together
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_ready(child, url, log)
            yield Engine(url=url, folder=folder, log=log)
        finally:
            _end(child)

    return running


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _wait_ready(child: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_LIMIT_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            pytest.fail(f"the server ended while starting:\n{_tail(log)}")
        with (
            contextlib.suppress(OSError, urllib.error.URLError),
            urllib.request.urlopen(url + "/health", timeout=10) as answer,
        ):
            if answer.status == 200:
                return
        time.sleep(0.5)
    pytest.fail(f"the server was not ready within {READY_LIMIT_S:g} s:\n{_tail(log)}")


def _tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(END_LIMIT_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
