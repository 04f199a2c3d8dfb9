"""Ctrl-C and SIGTERM end a sweep in order: table, last line, exit code 130; nothing measured is lost."""

from __future__ import annotations

import signal

import pytest

from deepdraft.records.file import read_run
from deepdraft.simulate.spec import Fault

SWEEP = ("--context-len", "200,300", "--repeats", "4", "--decode-len", "8", "--warmups", "0", "--out", "out.jsonl")


def ended_by(sweep, *signals: signal.Signals):
    for number in signals:
        sweep.signal(number)
    return sweep.end()


@pytest.mark.parametrize(
    "signals",
    [
        (signal.SIGINT, signal.SIGINT, signal.SIGINT),
        (signal.SIGTERM,),
        (signal.SIGHUP, signal.SIGINT),
    ],
    ids=lambda signals: "+".join(each.name for each in signals),
)
def test_what_was_measured_is_kept(start, simulated, physics, tmp_path, recorded, signals) -> None:
    server = simulated(physics=physics(prefill_b_s=2e-4))
    sweep = start("sweep", server.url, *SWEEP)
    sweep.wait_until_said(r"^\[3/8\]")
    ran = ended_by(sweep, *signals)
    assert ran.code == 130
    assert ran.said == ("interrupted; what was measured is kept", "go on with --resume out.jsonl")
    run = recorded(tmp_path / "out.jsonl")
    assert run.ends[-1].outcome == "interrupted"
    assert 3 <= len(run.trials) < 8
    assert run.ends[-1].at_s >= max(trial.ended_at_s for trial in run.trials)
    assert " 200 " in ran.out and " 300 " in ran.out
    assert "Not complete (interrupted)" in ran.out
    assert "results in out.jsonl" in ran.out


def test_it_goes_on_afterwards(start, deepdraft, simulated, physics, tmp_path, measured) -> None:
    server = simulated(physics=physics(prefill_b_s=2e-4))
    sweep = start("sweep", server.url, *SWEEP)
    sweep.wait_until_said(r"^\[2/8\]")
    assert ended_by(sweep, signal.SIGINT).code == 130
    ran = deepdraft("sweep", "--resume", "out.jsonl", "--quiet")
    assert ran.code == 0, ran.err
    assert ran.err == ""
    points = measured(tmp_path / "out.jsonl")
    assert {key: len(point.samples) for key, point in points.items()} == {(200, 1): 4, (300, 1): 4}


def test_while_a_request_waits_for_its_first_token(start, simulated, tmp_path) -> None:
    server = simulated(faults=(Fault(kind="stall", min_prompt_len=700),))
    sweep = start("sweep", server.url, "--context-len", "800", "--warmups", "0", "--out", "out.jsonl")
    file = tmp_path / "out.jsonl"
    sweep.wait_until(lambda: file.exists() and b"calibration" in file.read_bytes())
    ran = ended_by(sweep, signal.SIGINT)
    assert ran.code == 130
    assert "No point gave figures" in ran.out
    assert read_run(file).ends[-1].outcome == "interrupted"


def test_while_it_waits_for_a_server(start, port, tmp_path) -> None:
    sweep = start("sweep", f"http://127.0.0.1:{port}", *SWEEP, "--wait-server", "60")
    sweep.wait_until_said("waiting up to")
    ran = ended_by(sweep, signal.SIGINT)
    assert ran.code == 130
    assert ran.said == ("interrupted before anything was measured", None)
    assert list(tmp_path.iterdir()) == []


def test_what_the_shell_ignores_stays_ignored(start, simulated, tmp_path) -> None:
    # As under nohup: the terminal goes, the sweep stays.
    server = simulated()
    sweep = start("sweep", server.url, *SWEEP, is_hangup_ignored=True)
    sweep.wait_until_said(r"^\[1/8\]")
    ran = ended_by(sweep, signal.SIGHUP)
    assert ran.code == 0, ran.err
