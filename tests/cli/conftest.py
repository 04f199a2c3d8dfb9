"""Runs `deepdraft` as a user does, in a process of its own, against servers of known truth in other processes."""

from __future__ import annotations

import contextlib
import gc
import http.server
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from deepdraft.cli.main import main
from deepdraft.metrics import Point, points_of
from deepdraft.records import Run
from deepdraft.records.file import read_run
from deepdraft.simulate.process import RunningServer, running
from deepdraft.simulate.spec import Physics, SimulateSpec

LIMIT_S = 60.0
FAST = Physics(prefill_a_s=0.004, step_d_s=0.001)
"""A request for 8 tokens takes 12 ms."""
BRIEF = ("--decode-len", "8", "--warmups", "0", "--repeats", "1")


def free_port() -> int:
    """A port that a server may be started on, stopped, and started on again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass
class Ran:
    """One command that ended."""

    code: int
    out: str
    err: str

    def __post_init__(self) -> None:
        assert "Traceback" not in self.err, self.err

    @property
    def said(self) -> tuple[str, str | None]:
        """The error message and its hint: one line each, nothing of Python's in between."""
        lines = self.err.splitlines()
        messages = [line for line in lines if line.startswith("deepdraft: ")]
        assert len(messages) == 1, self.err
        rest = lines[lines.index(messages[0]) + 1 :]
        assert len(rest) <= 1, self.err
        assert all(line.startswith("hint: ") for line in rest), self.err
        return messages[0].removeprefix("deepdraft: "), rest[0].removeprefix("hint: ") if rest else None

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@dataclass
class Started:
    """A command that runs. What it says is gathered from its start on."""

    child: subprocess.Popen[str]
    err: list[str] = field(default_factory=list)
    _reader: threading.Thread | None = None

    def __post_init__(self) -> None:
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            self.err.append(line)

    def wait_until_said(self, pattern: str, *, num_times: int = 1) -> None:
        """Wait for lines on standard error that match."""
        self.wait_until(lambda: sum(1 for line in self.err if re.search(pattern, line)) >= num_times)

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait until something is so; fails when the command ends first."""
        deadline = time.monotonic() + LIMIT_S
        while not is_so():
            assert time.monotonic() < deadline, self.err
            assert self._reader_is_alive, (self.child.poll(), self.err)
            time.sleep(0.005)

    @property
    def _reader_is_alive(self) -> bool:
        return self._reader is not None and self._reader.is_alive()

    def signal(self, number: signal.Signals) -> None:
        self.child.send_signal(number)

    def end(self) -> Ran:
        """Wait for its end."""
        assert self.child.stdout is not None and self._reader is not None
        out = self.child.stdout.read()
        self.child.wait(LIMIT_S)
        self._reader.join(LIMIT_S)
        return Ran(self.child.returncode, out, "".join(self.err))


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    return {**kept, "COLUMNS": "80", **(extra or {})}


def command(*words: object, launcher: str | None = None) -> list[str]:
    """The command line; `launcher` is Python that runs first in the same process."""
    start = ["-m", "deepdraft"]
    if launcher is not None:
        start = ["-c", f"{launcher}\nimport sys\nfrom deepdraft.cli.main import main\nsys.exit(main())"]
    return [sys.executable, *start, *map(str, words)]


Deepdraft = Callable[..., Ran]
Start = Callable[..., Started]
Simulated = Callable[..., RunningServer]
Answer = tuple[int, str, bytes]
"""Status, content type, body."""
Loopback = Callable[[Callable[[http.server.BaseHTTPRequestHandler], Answer]], str]


@pytest.fixture
def deepdraft(tmp_path: Path) -> Deepdraft:
    """Run a command to its end, in the test's folder: deepdraft("show", file)."""

    def run(*words: object, env: Mapping[str, str] | None = None, launcher: str | None = None) -> Ran:
        done = subprocess.run(
            command(*words, launcher=launcher),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            env=environment(env),
            cwd=tmp_path,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run


@pytest.fixture(scope="session", autouse=True)
def quick_collections() -> None:
    """What was imported and collected for the tests is left out of the collections between trials."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def signals_as_in_a_terminal() -> Iterator[None]:
    """What runs in the background of a script has SIGINT ignored, and so have its children."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler is signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def called(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Deepdraft:
    """As `deepdraft`, in this process: where no signal, limit or environment of a process is at stake."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def run(*words: object) -> Ran:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command and leave it running; whatever still runs at the end of the test is killed."""
    children: list[subprocess.Popen[str]] = []

    def run(*words: object, env: Mapping[str, str] | None = None, is_hangup_ignored: bool = False) -> Started:
        launcher = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)" if is_hangup_ignored else None
        child = subprocess.Popen(
            command(*words, launcher=launcher),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(env),
            cwd=tmp_path,
        )
        children.append(child)
        return Started(child)

    yield run
    for child in children:
        child.kill()
        child.wait()
        for stream in (child.stdout, child.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def simulated() -> Iterator[Simulated]:
    """Start servers of known truth that end with the test: simulated(dialect="vllm", physics=..., faults=...)."""
    with contextlib.ExitStack() as stack:

        def begin(spec: SimulateSpec | None = None, **parts: Any) -> RunningServer:
            spec = spec or SimulateSpec(**{"dialect": "vllm", "physics": FAST, **parts})
            return stack.enter_context(running(spec))

        yield begin


@pytest.fixture(scope="module")
def plain() -> Iterator[RunningServer]:
    """A server without any confound, shared by the tests of a module."""
    with running(SimulateSpec(dialect="vllm", physics=FAST)) as server:
        yield server


@pytest.fixture
def port() -> int:
    """A free port."""
    return free_port()


@pytest.fixture
def physics() -> Callable[..., Physics]:
    """FAST with other values: physics(max_running=1)."""
    return lambda **values: replace(FAST, **values)


@pytest.fixture
def loopback() -> Iterator[Loopback]:
    """A small HTTP server that answers whatever the function says; returns its URL."""
    with contextlib.ExitStack() as stack:

        def begin(answer: Callable[[http.server.BaseHTTPRequestHandler], Answer]) -> str:
            class Handler(http.server.BaseHTTPRequestHandler):
                protocol_version = "HTTP/1.1"

                def do_GET(self) -> None:
                    self.rfile.read(int(self.headers.get("content-length") or 0))
                    status, content_type, body = answer(self)
                    self.send_response(status)
                    self.send_header("content-type", content_type)
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

                do_POST = do_GET  # noqa: N815  # the base class's own name

                def log_message(self, format: str, *args: object) -> None:
                    pass

            server = stack.enter_context(http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler))
            server.daemon_threads = True
            threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
            stack.callback(server.shutdown)
            return f"http://127.0.0.1:{server.server_address[1]}"

        yield begin


@pytest.fixture
def brief() -> tuple[str, ...]:
    """Flags of a sweep that is over soon."""
    return BRIEF


@pytest.fixture
def measured() -> Callable[[Path], dict[tuple[int, int], Point]]:
    """The points of a results file, by asked context length and concurrency."""
    return lambda path: {point.key: point for point in points_of(read_run(path))}


@pytest.fixture
def recorded() -> Callable[[Path], Run]:
    """What a results file holds; every line must be whole."""

    def read(path: Path) -> Run:
        content = path.read_bytes()
        assert content.endswith(b"\n")
        run = read_run(path)
        assert not run.damage
        return run

    return read
