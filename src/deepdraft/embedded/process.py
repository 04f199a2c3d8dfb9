"""Starts an embedded server as a child process and ends it again.

The child is tied to its parent by standard input, prints one line `url http://127.0.0.1:PORT` once it is ready, and
writes its log to standard error.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from deepdraft.embedded.spec import EmbeddedSpec
from deepdraft.errors import ServerError

_READY_LIMIT_S = 120.0
_END_LIMIT_S = 10.0
_HINT = "hint: "


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedServer:
    """A running embedded server."""

    url: str
    pid: int
    log_path: Path
    """The engine's own log; it goes with the server."""


@contextlib.contextmanager
def running(spec: EmbeddedSpec) -> Iterator[EmbeddedServer]:
    """Start the server, hand out its URL once it is ready, end it on leaving.

    Raises UsageError when it is not installed, ServerError (with the end of its log) when it does not come up.
    """
    words, environment = spec.command(), {**os.environ, **spec.environment()}
    with tempfile.TemporaryDirectory(prefix="deepdraft-embedded-") as folder:
        log_path = Path(folder) / "server.log"
        with log_path.open("wb") as log:
            child = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environment
            )
        try:
            yield EmbeddedServer(url=_url(child, log_path), pid=child.pid, log_path=log_path)
        finally:
            _end(child)


def _url(child: subprocess.Popen[bytes], log_path: Path) -> str:
    assert child.stdout is not None
    overdue = threading.Timer(_READY_LIMIT_S, child.kill)
    overdue.start()
    try:
        for line in child.stdout:
            if line.startswith(b"url "):
                return line[4:].decode().strip()
    finally:
        overdue.cancel()
    raise _did_not_start(log_path.read_text(errors="replace").strip().splitlines())


def _did_not_start(log: list[str]) -> ServerError:
    """In the child's own words: its last line, or what a command of ours says of an error, with the hint."""
    hint = None
    if log and log[-1].startswith(_HINT):
        hint = log.pop().removeprefix(_HINT)
    reason = log[-1].removeprefix("deepdraft: ") if log else "it said nothing"
    return ServerError(f"the embedded server did not start: {reason}", hint=hint)


def _end(child: subprocess.Popen[bytes]) -> None:
    assert child.stdin is not None and child.stdout is not None
    child.stdin.close()
    try:
        child.wait(2.0)
    except subprocess.TimeoutExpired:
        child.terminate()
        try:
            child.wait(_END_LIMIT_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    child.stdout.close()
