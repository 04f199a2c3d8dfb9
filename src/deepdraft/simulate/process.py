"""The server of known truth in a process of its own, so that client and server don't share a core's time or a loop.

    with running(spec) as server:
        measure(server.url)
        truths = server.truths(reset=True)

The child ends with its parent: it watches its standard input, which the kernel closes for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import http.client
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import deepdraft
from deepdraft.errors import ServerError
from deepdraft.simulate.clock import precise_loop
from deepdraft.simulate.server import Server
from deepdraft.simulate.spec import SimulateSpec, spec_from_json, spec_json
from deepdraft.simulate.truth import RequestTruth, truths_from_json

STDIN_FLAG = "--spec-from-stdin"
_READY_LIMIT_S = 30.0
_END_LIMIT_S = 5.0
_TRUTH_LIMIT_S = 30.0
_URL_MARK = b"url "


@dataclass(frozen=True, slots=True)
class RunningServer:
    """A server of known truth in another process. `url` has the base path, not /v1."""

    url: str
    pid: int
    spec: SimulateSpec
    _child: subprocess.Popen[bytes] = field(repr=False)

    def truths(self, *, reset: bool = False) -> list[RequestTruth]:
        """What really happened to the requests that ended so far; `reset` forgets them afterwards.

        Raises OSError when the server is gone.
        """
        address = urlsplit(self.url)
        assert address.hostname is not None
        connection: http.client.HTTPConnection
        if address.scheme == "https":
            unverified = ssl.create_default_context()
            unverified.check_hostname = False
            unverified.verify_mode = ssl.CERT_NONE
            connection = http.client.HTTPSConnection(
                address.hostname, address.port, timeout=_TRUTH_LIMIT_S, context=unverified
            )
        else:
            connection = http.client.HTTPConnection(address.hostname, address.port, timeout=_TRUTH_LIMIT_S)
        with contextlib.closing(connection):
            connection.request("GET", "/_truth?reset=1" if reset else "/_truth")
            return truths_from_json(connection.getresponse().read())

    @property
    def is_alive(self) -> bool:
        """Whether the process runs (a server that closed its sockets may still run)."""
        return self._child.poll() is None

    def kill(self) -> None:
        """End the process at once, as a crash would."""
        self._child.kill()
        self._child.wait()


@contextlib.contextmanager
def running(spec: SimulateSpec) -> Iterator[RunningServer]:
    """Run a server for the block.

    Raises ServerError, with its last words, when it does not come up.
    """
    source = str(Path(deepdraft.__file__).resolve().parent.parent)
    paths = [source, *filter(None, [os.environ.get("PYTHONPATH")])]
    child = subprocess.Popen(
        [sys.executable, "-m", "deepdraft.simulate", STDIN_FLAG],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert child.stdin is not None and child.stdout is not None and child.stderr is not None
    try:
        with contextlib.suppress(BrokenPipeError):  # it died at once; its last words say why
            child.stdin.write(spec_json(spec) + b"\n")
            child.stdin.flush()
        overdue = threading.Timer(_READY_LIMIT_S, child.kill)
        overdue.start()
        line = child.stdout.readline()
        overdue.cancel()
        if not line.startswith(_URL_MARK):
            child.kill()
            last_words = child.stderr.read().decode(errors="replace").strip()
            raise ServerError(f"the simulated server did not start: {last_words or 'it said nothing'}")
        url = line.removeprefix(_URL_MARK).decode().strip()
        # Whatever it says from here on must not fill the pipe.
        threading.Thread(target=_pass_on, args=(child.stderr,), daemon=True).start()
        yield RunningServer(url, child.pid, spec, child)
    finally:
        _end(child)


def serve_parent() -> int:
    """The child's side: spec on standard input, URL on standard output, then serve until the parent is gone."""
    spec = spec_from_json(sys.stdin.buffer.readline())
    return _serve(spec, url_mark=_URL_MARK.decode(), watches_stdin=True)


def serve_until_signal(spec: SimulateSpec) -> int:
    """Serve in this process until SIGINT or SIGTERM. The URL goes to stdout. Returns the exit code, 0."""
    print("simulating; Ctrl-C ends it", file=sys.stderr)
    return _serve(spec, url_mark="", watches_stdin=False)


def _serve(spec: SimulateSpec, *, url_mark: str, watches_stdin: bool) -> int:
    async def serve() -> None:
        loop = asyncio.get_running_loop()
        over = asyncio.Event()
        if watches_stdin:
            loop.add_reader(sys.stdin.fileno(), over.set)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, over.set)
        server = Server(spec)
        print(f"{url_mark}{await server.start()}", flush=True)
        await over.wait()
        if watches_stdin:
            loop.remove_reader(sys.stdin.fileno())
        await server.stop()

    # A full collection over a long truth log would make writes late; what is made here has few cycles.
    gc.set_threshold(200_000, 50, 1000)
    with asyncio.Runner(loop_factory=precise_loop) as runner:
        runner.run(serve())
    return 0


def _pass_on(stream: object) -> None:
    for line in stream:  # type: ignore[attr-defined]
        sys.stderr.buffer.write(line)
        sys.stderr.flush()


def _end(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(BrokenPipeError):
        assert child.stdin is not None
        child.stdin.close()
    try:
        child.wait(_END_LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
