"""Starting and ending a child, with small programs in the place of a server."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from deepdraft.embedded import EmbeddedSpec, running
from deepdraft.errors import ServerError, UsageError

TIED = "import sys, os\nprint('noise')\nprint('url http://127.0.0.1:1', flush=True)\nsys.stdin.buffer.read()\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSpec(EmbeddedSpec):
    """A child that runs this Python program."""

    label: ClassVar[str] = "a program"
    default_context_lens: ClassVar[str] = "1k"

    program: str = TIED

    def command(self) -> list[str]:
        return [sys.executable, "-c", self.program]

    def environment(self) -> Mapping[str, str]:
        return {"DEEPDRAFT_TEST_VARIABLE": "given"}


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 20
    while not is_gone(pid):
        assert time.monotonic() < deadline, "the server outlived its parent"
        time.sleep(0.05)


def test_the_url_is_the_line_that_says_so() -> None:
    with running(ProgramSpec()) as server:
        assert server.url == "http://127.0.0.1:1"
        assert not is_gone(server.pid)
    assert is_gone(server.pid)


def test_a_child_that_does_not_listen_is_ended_all_the_same() -> None:
    stubborn = TIED.replace("sys.stdin.buffer.read()", "import time; time.sleep(60)")
    with running(ProgramSpec(program=stubborn)) as server:
        pass
    assert is_gone(server.pid)


def test_it_is_ended_when_the_caller_fails() -> None:
    with pytest.raises(ZeroDivisionError), running(ProgramSpec()) as server:
        _ = 1 / 0
    assert is_gone(server.pid)


def test_a_child_that_dies_is_quoted() -> None:
    program = "import sys; print('much talk', file=sys.stderr); sys.exit('no such weights')"
    with pytest.raises(ServerError, match=r"did not start: no such weights"), running(ProgramSpec(program=program)):
        pytest.fail("it never ran")


def test_a_child_that_says_what_to_do_is_quoted_whole() -> None:
    program = "import sys; print('loading\\ndeepdraft: no model there\\nhint: give a path', file=sys.stderr)"
    spec = ProgramSpec(program=program)
    with pytest.raises(ServerError, match=r"did not start: no model there$") as caught, running(spec):
        pytest.fail("it never ran")
    assert caught.value.hint == "give a path"


def test_a_child_that_says_nothing() -> None:
    with pytest.raises(ServerError, match="it said nothing"), running(ProgramSpec(program="")):
        pytest.fail("it never ran")


def test_its_log_and_its_environment() -> None:
    program = "import os, sys\nprint(os.environ['DEEPDRAFT_TEST_VARIABLE'], file=sys.stderr, flush=True)\n" + TIED
    with running(ProgramSpec(program=program)) as server:
        assert server.log_path.read_text().strip() == "given"
    assert not server.log_path.exists()


def test_a_missing_installation_starts_nothing() -> None:
    class Missing(ProgramSpec):
        def command(self) -> list[str]:
            raise UsageError("not installed")

    with pytest.raises(UsageError, match="not installed"), running(Missing()):
        pytest.fail("it never ran")


def test_the_server_ends_with_its_parent() -> None:
    """Killed without a chance to clean up, the parent leaves no server behind."""
    code = (
        "import sys, time\nfrom deepdraft.embedded import running\n"
        f"sys.path.insert(0, {str(Path(__file__).parent)!r})\nfrom test_process import ProgramSpec\n"
        "with running(ProgramSpec()) as server:\n    print(server.pid, flush=True)\n    time.sleep(60)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    wait_until_gone(pid)


@pytest.mark.parametrize(("asked", "rounded"), [(1, 256), (256, 256), (257, 512), (185_065, 185_088)])
def test_a_context_is_rounded_up(asked: int, rounded: int) -> None:
    assert ProgramSpec(context_len=asked).slot_len == rounded
