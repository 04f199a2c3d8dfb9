"""`deepdraft compare`: files, and servers of known truth measured in turns.

Verdicts are looked at in files made here; what is measured on a busy machine may be put in doubt by the guards.
"""

from __future__ import annotations

import os
import signal
import stat
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).parents[1] / folder) for folder in ("metrics", "compare")]

from sweeps import Sweep, alternating, drafted  # noqa: E402

from deepdraft.records import Run  # noqa: E402
from deepdraft.records.file import ResultsWriter, read_run  # noqa: E402
from deepdraft.simulate.spec import Confounds, Fault, Physics  # noqa: E402

PLAIN = Physics(prefill_a_s=0.004, step_d_s=0.006)
DRAFTED = Physics(prefill_a_s=0.004, step_d_s=0.003, step_e_s=3e-6)
"""As fast as PLAIN at 1,000 tokens."""
LENGTHS = "300,600,1200,2400"
TRUE_RATIOS = (0.65, 0.8, 1.1, 1.7)
QUICK = ("--decode-len", "16", "--warmups", "0")


def written(run: Run, path: Path) -> Path:
    """The run as a results file."""
    writer = ResultsWriter.create(path, run.header)
    writer.append(*run.measurements, *run.trials)
    writer.close()
    return path


@pytest.fixture
def two(tmp_path) -> tuple[Path, Path]:
    """Results files of a plain server and of one with a drafter, as fast as it at 70,000 tokens; in turns."""
    runs = alternating(Sweep(noise_frac=0.003), Sweep(noise_frac=0.003, tpot=drafted))
    return written(runs[0], tmp_path / "plain.jsonl"), written(runs[1], tmp_path / "drafted.jsonl")


def in_doubt(figure) -> bool:
    return (figure["reason"] or "").startswith("in doubt")


def test_two_files(called, two) -> None:
    ran = called("compare", *two)
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 80
    words = " ".join(ran.out.split())
    assert "A: plain.jsonl" in words and "B: drafted.jsonl" in words
    found = called("compare", *two, "--json").json
    verdicts = [point["figures"]["tpot_s"]["verdict"] for point in found["points"]]
    assert verdicts == ["better"] * 4 + ["worse"]
    interval = found["crossover_len"]["interval"]
    assert interval["low"] < 70_000 < interval["high"]


def test_the_gate_ends_with_8_on_a_regression_only(called, two) -> None:
    plain_file, drafted_file = two
    ran = called("compare", plain_file, drafted_file, "--gate", "tpot=5%")
    assert ran.code == 8
    assert "gate: FAIL (1 failed, 4 passed, 0 can't be told)" in ran.out
    assert called("compare", plain_file, drafted_file, "--gate", "tpot=200%").code == 0
    ran = called("compare", plain_file, plain_file, "--gate", "tpot=5%,ttft=50%", "--json")
    assert ran.code == 0
    assert {result["state"] for result in ran.json["gate"]} == {"pass"}


def test_three_files_give_the_best_per_length(called, two) -> None:
    plain_file, drafted_file = two
    ran = called("compare", plain_file, drafted_file, plain_file)
    assert ran.code == 0, ran.err
    assert "best per context length" in ran.out
    assert "frontier" in ran.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("a.jsonl",), "one file can't be compared"),
        (("a.jsonl", "b.jsonl", "--gate", "tpot"), "--gate: not a limit: 'tpot'"),
        (("a.jsonl", "b.jsonl", "--context-len", "1k"), "--context-len is for measuring"),
        (("a.jsonl", "b.jsonl", "--repeats", "3"), "--repeats is for measuring"),
        (("--run", "a.jsonl", "b.jsonl", "--context-len", "1k"), "--run takes URLs"),
        (("--run", "http://h", "--context-len", "1k"), "--run takes two servers or more, or one URL"),
        (("--run", "embedded", "--switch-command", "x {}"), "--switch-command is for one server: give one URL"),
        (("--run", "embedded", "embedded --tree-budget 4"), "--tree-budget is for drafting, and there is no drafter"),
        (("--run", "embedded", "embedded --tre-budget 4"), "'embedded --tre-budget 4': unrecognized arguments"),
        (("--run", "embedded", "embedded vlm"), "no embedded engine 'vlm'"),
        (("--run", "embedded", "embedded llamacpp --drafter ngram"), "--drafter is for the embedded deepdraft"),
        (("--run", "embedded", "embedded 'x"), """"embedded 'x": No closing quotation"""),
        (("--run", "embedded", "embedded llamacpp"), "these servers have no lengths in common by default"),
        (("--run", "http://h", "http://h", "--switch-command", "x {}"), "--switch-command is for one server"),
        (("--run", "http://h", "--switch-command", "x"), "--switch-command does not say where"),
        (("--run", "http://h", "http://i"), "nothing to measure"),
    ],
)
def test_what_cannot_be_used(called, words, message) -> None:
    ran = called("compare", *words)
    assert ran.code == 2
    assert ran.said[0].startswith(message)


def test_a_file_that_is_not_there(called, tmp_path) -> None:
    assert called("compare", tmp_path / "no.jsonl", tmp_path / "no.jsonl").code == 5


def test_in_turns_the_crossover_is_found(called, simulated, tmp_path, least_disturbed) -> None:
    servers = simulated(physics=PLAIN), simulated(physics=DRAFTED)
    urls = [server.url for server in servers]
    names = (f"x{number}" for number in count())

    def measure():
        name = next(names)
        ran = called("compare", "--run", *urls, "--context-len", LENGTHS, *QUICK, "--out", name, "--json")
        assert ran.code == 0, ran.err
        assert "A: [1/16] 300 tokens, repeat 1" in ran.err and "B: [16/16]" in ran.err
        return name, ran.json, [point["figures"]["tpot_s"] for point in ran.json["points"]]

    def error(seen) -> float:
        return max(abs(figure["ratio"] / true - 1) for figure, true in zip(seen[2], TRUE_RATIOS, strict=True))

    name, found, figures = least_disturbed(measure, error, enough=0.1, num_attempts=3)
    assert all(figure["is_interleaved"] and figure["num_pairs"] == 4 for figure in figures)
    assert figures[0]["ratio"] < 0.8 and figures[3]["ratio"] > 1.2
    if not any(map(in_doubt, figures)):
        interval = found["crossover_len"]["interval"]
        assert interval["low"] < 1_000 < interval["high"]
    runs = [read_run(tmp_path / f"{name}-{side}.jsonl") for side in "ab"]
    assert all(run.is_complete for run in runs)
    assert all(len(run.trials) == 16 for run in runs)
    again = called("compare", f"{name}-a.jsonl", f"{name}-b.jsonl", "--json").json
    assert again["points"] == found["points"]


def test_in_turns_drift_cancels(called, simulated, least_disturbed) -> None:
    # Each request is 2 % slower than the one before it, on both servers alike.
    slowing = {"physics": PLAIN, "confounds": Confounds(drift_frac=0.02)}
    words = ("--context-len", "300", *QUICK, "--repeats", "6", "--quiet", "--json", "--gate", "tpot=10%")

    def measure():
        ran = called("compare", "--run", simulated(**slowing).url, simulated(**slowing).url, *words)
        (point,) = ran.json["points"]
        assert point["figures"]["tpot_s"]["is_interleaved"]
        return ran, point["figures"]["tpot_s"]["ratio"]

    ran, ratio = least_disturbed(measure, lambda seen: abs(seen[1] - 1), enough=0.08)
    assert ran.code == 0, ran.err
    assert ratio == pytest.approx(1, abs=0.08)


def test_when_one_is_lost_the_other_stops_and_both_keep_what_they_have(called, simulated, tmp_path) -> None:
    dying = simulated(physics=PLAIN, faults=(Fault(kind="die", min_prompt_len=700, at=(2,)),))
    words = ("--context-len", "800", *QUICK, "--out", "x", "--wait-server", "0.2", "--quiet")
    ran = called("compare", "--run", simulated(physics=PLAIN).url, dying.url, *words)
    assert ran.code == 4
    runs = [read_run(tmp_path / f"x-{name}.jsonl") for name in "ab"]
    assert [run.ends[-1].outcome for run in runs] == ["interrupted", "server_lost"]
    assert all(run.measurements for run in runs)


def test_a_server_that_is_not_there(called, simulated, tmp_path) -> None:
    ran = called("compare", "--run", simulated().url, "http://127.0.0.1:1", "--context-len", "300", "--quiet")
    assert ran.code == 3


SERVE = """#!/bin/sh
cd "$(dirname "$0")"
echo "$1" >> switched
[ -f pid ] && kill "$(cat pid)"
case "$1" in A) step=0.004 ;; B) step=0.008 ;; esac
{python} -m deepdraft simulate --dialect vllm --port {port} --prefill 0.004 --step $step >log 2>&1 &
echo $! > pid
"""


@pytest.fixture
def switcher(tmp_path: Path, port: int) -> Iterator[Callable[[], tuple[str, str]]]:
    """A script that restarts one server as A (4 ms a step) or B (8 ms): its command and the server's URL."""

    def make() -> tuple[str, str]:
        script = tmp_path / "serve.sh"
        script.write_text(SERVE.format(python=sys.executable, port=port))
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        return f"{script} {{}}", f"http://127.0.0.1:{port}"

    yield make
    pid = tmp_path / "pid"
    if pid.exists():
        os.kill(int(pid.read_text()), signal.SIGTERM)


def test_one_server_is_switched_between_rounds(called, switcher, tmp_path) -> None:
    command, url = switcher()
    words = ("--context-len", "300,600", *QUICK, "--out", "x", "--json", "--wait-server", "20")
    ran = called("compare", "--run", url, "--switch-command", command, *words)
    assert ran.code == 0, ran.err
    assert (tmp_path / "switched").read_text().split() == ["A", "B", "A", "B", "A"]
    for point in ran.json["points"]:
        figure = point["figures"]["tpot_s"]
        assert 1.3 < figure["ratio"] < 3.1  # 2; a mix-up of A and B makes it 1 or 0.5
        assert figure["verdict"] == "worse" or in_doubt(figure)
        assert figure["is_interleaved"]


def test_switching_goes_on_where_it_stopped(called, switcher, tmp_path) -> None:
    command, url = switcher()
    words = ("--switch-command", command, "--wait-server", "20", "--quiet")
    measure = ("--context-len", "300", *QUICK, "--repeats", "2")
    assert called("compare", "--run", url, *words, *measure, "--out", "x").code == 0
    for side, num_trials in (("a", 1), ("b", 0)):  # as if it had been killed while it was switched to B
        path = tmp_path / f"x-{side}.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        places = [0, *(place for place, line in enumerate(lines) if line.startswith(b'{"kind":"trial"'))]
        path.write_bytes(b"".join(lines[: places[num_trials] + 1]))
    (tmp_path / "switched").unlink()
    ran = called("compare", "--run", url, *words, "--resume", "x", "--json")
    assert ran.code == 0, ran.err
    assert (tmp_path / "switched").read_text().split() == ["A", "B", "A"]
    (point,) = ran.json["points"]
    assert 1.3 < point["figures"]["tpot_s"]["ratio"] < 3.1
    assert point["figures"]["tpot_s"]["num_pairs"] == 2


def test_a_switch_that_fails_is_said(called) -> None:
    ran = called("compare", "--run", "http://127.0.0.1:1", "--switch-command", "exit 3 {}", "--context-len", "1k")
    assert ran.code == 3
    assert ran.said[0] == "--switch-command failed for A: exit code 3"
