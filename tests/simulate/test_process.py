from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import deepdraft
from deepdraft.errors import ServerError
from deepdraft.simulate.process import RunningServer, running
from deepdraft.simulate.spec import Fault, Physics, SimulateSpec
from deepdraft.simulate.truth import tpot_s, ttft_s

SOURCE = str(Path(deepdraft.__file__).resolve().parent.parent)


def stream(server: RunningServer, max_tokens: int = 8) -> bytes:
    address = urlsplit(server.url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    body = json.dumps({"prompt": "one two", "stream": True, "max_tokens": max_tokens})
    connection.request("POST", "/v1/completions", body)
    received = connection.getresponse().read()
    connection.close()
    return received


def is_running(pid: int) -> bool:
    """Whether the process lives; one that nobody has collected yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def test_serves_and_ends_with_the_block(least_disturbed: Any) -> None:
    with running(SimulateSpec(physics=Physics(prefill_a_s=0.03, step_d_s=0.002))) as server:
        sent_s = time.monotonic()
        assert b"[DONE]" in stream(server, max_tokens=30)
        (truth,) = server.truths(reset=True)
        assert server.truths() == []
        assert server.is_alive

        def streamed_tpot_s() -> float:
            stream(server, max_tokens=30)
            (truth,) = server.truths(reset=True)
            return tpot_s(truth) or 0.0

        token_s = least_disturbed(streamed_tpot_s, lambda found: abs(found / 0.002 - 1), enough=0.1)
    # one clock for both processes
    assert sent_s <= truth.received_s <= truth.writes[0].time_s <= time.monotonic()
    assert (ttft_s(truth) or 0) >= 0.03
    assert token_s == pytest.approx(0.002, rel=0.1)
    assert not is_running(server.pid)


def test_kill_is_a_crash() -> None:
    with running(SimulateSpec()) as server:
        server.kill()
        assert not server.is_alive
        with pytest.raises(OSError):
            stream(server)


def test_death_by_exit() -> None:
    with running(SimulateSpec(faults=(Fault(kind="die", at=(2,), die_by="exit"),))) as server:
        stream(server)
        with pytest.raises((http.client.HTTPException, OSError)):
            stream(server)
        server._child.wait(10)
        assert not server.is_alive


def test_a_server_that_cant_start_says_why() -> None:
    with running(SimulateSpec()) as server:
        taken = urlsplit(server.url).port or 0
        with pytest.raises(ServerError, match="can't listen"), running(SimulateSpec(port=taken)):
            pass


def test_the_child_ends_with_its_parent() -> None:
    parent_code = textwrap.dedent(
        """
        import sys, time
        from deepdraft.simulate.process import running
        from deepdraft.simulate.spec import SimulateSpec
        with running(SimulateSpec()) as server:
            print(server.pid, flush=True)
            time.sleep(60)
        """
    )
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    child_pid = int(parent.stdout.readline())
    assert is_running(child_pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end_s = time.monotonic() + 20
    while is_running(child_pid) and time.monotonic() < end_s:
        time.sleep(0.02)
    assert not is_running(child_pid)


def test_the_module_serves_with_flags_until_a_signal() -> None:
    words = [sys.executable, "-m", "deepdraft.simulate", "--dialect", "vllm", "--prefill", "0.01"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    child = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)
    assert child.stdout is not None and child.stderr is not None
    url = child.stdout.readline().decode().strip()
    address = urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=10)
    connection.request("GET", "/version")
    assert connection.getresponse().status == 200
    connection.close()
    child.send_signal(signal.SIGINT)
    assert child.wait(10) == 0
    assert child.stdout.read() == b""
    child.stdout.close()
    child.stderr.close()


def test_the_module_names_what_is_wrong_with_a_flag() -> None:
    words = [sys.executable, "-m", "deepdraft.simulate", "--confound", "no_such_thing"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    done = subprocess.run(words, capture_output=True, env=environment, timeout=20)
    assert done.returncode == 2
    assert b"no such name: 'no_such_thing'" in done.stderr and b"prefix_cache" in done.stderr
    assert done.stdout == b""
