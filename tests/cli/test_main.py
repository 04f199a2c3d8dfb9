"""The command line as a whole: help, start-up cost, errors of flags, pipes that close."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from deepdraft.cli.main import main
from deepdraft.version import VERSION

COMMANDS = ("sweep", "show", "servers", "serve", "bench", "simulate", "selftest")
HEAVY = ("numpy", "torch", "transformers", "tokenizers", "pandas", "matplotlib", "aiohttp", "httpx", "requests")
HELP_CPU_S = 0.3
IMPORT_S = 0.15


def cpu_s(*words: str) -> float:
    """CPU seconds of the cheapest of some runs: what the machine does beside it is not ours."""
    costs = []
    for _ in range(2):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *words], check=True, capture_output=True, timeout=60)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        costs.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    return min(costs)


@pytest.mark.alone
@pytest.mark.parametrize(
    "command", [(), *((name,) for name in COMMANDS)], ids=lambda command: "".join(command) or "-"
)
def test_help_is_quick(command) -> None:
    # On a machine that is slow, or slowed down by its neighbours: against what any such command needs.
    limit_s = max(HELP_CPU_S, 3 * cpu_s("-c", "import argparse, asyncio, dataclasses, json"))
    assert cpu_s("-m", "deepdraft", *command, "--help") <= limit_s


@pytest.mark.alone
def test_import_is_quick() -> None:
    program = "import time; t = time.perf_counter(); import deepdraft; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout for _ in range(3)]
    assert min(map(float, runs)) <= IMPORT_S


@pytest.mark.parametrize(
    "words",
    [["--help"], ["sweep", "http://127.0.0.1:1", "--context-len", "1k"]],
    ids=["help", "sweep"],
)
def test_nothing_heavy_is_loaded(words, tmp_path) -> None:
    program = (
        "import json, sys\n"
        "from deepdraft.cli.main import main\n"
        f"main({words!r})\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_the_base_install_is_light() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    names = sorted(requirement.split(">=")[0].strip() for requirement in project["dependencies"])
    assert names == ["httptools", "msgspec"]


@pytest.mark.alone
@pytest.mark.parametrize(
    "command", [(), *((name,) for name in COMMANDS)], ids=lambda command: "".join(command) or "-"
)
def test_help_fits_80_columns(called, command, capsys) -> None:
    ran = called(*command, "--help")
    assert ran.code == 0
    assert ran.out.startswith("usage: deepdraft")
    if command != ("simulate",):  # its examples are meant to be copied, and are not wrapped
        assert max(map(len, ran.out.splitlines())) <= 80


def test_version(called) -> None:
    assert called("--version").out == f"deepdraft {VERSION}\n"


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        ((), "the following arguments are required: COMMAND", "deepdraft --help"),
        (("measure",), "invalid choice: 'measure'", "deepdraft --help"),
        (("sweep", "--wrong"), "unknown argument: --wrong", "deepdraft sweep --help"),
        (("sweep", "http://a", "http://b"), "unknown argument: http://b", "deepdraft sweep --help"),
        (("show",), "the following arguments are required: FILE", "deepdraft show --help"),
        (("show", "a", "--json", "--csv"), "not allowed with argument --json", "deepdraft show --help"),
        (("servers",), "the following arguments are required: URL", "deepdraft servers --help"),
        (("selftest", "--only", "nonsense"), "no such check: nonsense", "deepdraft selftest --list"),
    ],
)
def test_a_command_line_that_can_not_be_used(called, words, message, hint) -> None:
    ran = called(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert message in ran.said[0]
    assert ran.said[1].startswith(hint)


def test_flags_can_not_be_shortened(called) -> None:
    # A shortened --api-key would not be found by what keeps keys out of the recorded command line.
    ran = called("sweep", "http://127.0.0.1:1", "--context-len", "1k", "--api-k", "0123456789")
    assert ran.code == 2
    assert ran.said[0] == "unknown argument: --api-k"


def test_an_interrupted_command_says_so(monkeypatch, capsys) -> None:
    def interrupted(namespace: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("deepdraft.cli.show.run", interrupted)
    assert main(["show", "some.jsonl"]) == 130
    assert capsys.readouterr().err == "deepdraft: interrupted\n"


def test_messages_are_one_line(capsys, monkeypatch) -> None:
    from deepdraft.errors import ServerError

    def failed(namespace: object) -> int:
        raise ServerError("the server said:\n  too bad\n", hint="look at\nits log")

    monkeypatch.setattr("deepdraft.cli.show.run", failed)
    assert main(["show", "some.jsonl"]) == 3
    assert capsys.readouterr().err == "deepdraft: the server said: too bad\nhint: look at its log\n"


@pytest.mark.parametrize("words", [("sweep", "--help"), ("simulate", "--help"), ("selftest", "--list")])
def test_a_reader_that_goes_away_is_no_fault(words) -> None:
    """As `| head -1`: nothing on standard error, not even from Python's own last flush."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "deepdraft", *words], stdout=writing, stderr=subprocess.PIPE, timeout=60
        )
    finally:
        os.close(writing)
    assert done.stderr == b""
    assert done.returncode in (0, 1)
