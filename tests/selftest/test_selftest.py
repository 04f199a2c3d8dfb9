"""The selftest runs, its truth is the server's, and it can fail."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from deepdraft.errors import UsageError
from deepdraft.metrics import ttft_s
from deepdraft.records import EventLog, Measurement, PromptFacts, RequestTrace, Usage
from deepdraft.selftest.check import Check, Error
from deepdraft.selftest.runner import all_checks, run_selftest
from deepdraft.selftest.timing import Pair
from deepdraft.simulate.truth import RequestTruth, Write

pytestmark = pytest.mark.alone


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "deepdraft", "selftest", *words], capture_output=True, text=True)


def test_every_check_is_named_once_and_listed() -> None:
    names = [check.name for check in all_checks()]
    assert len(names) == len(set(names)) >= 40
    listed = command("--list")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()] == names


def test_counts_faults_and_cache_are_right_on_any_machine() -> None:
    """Times depend on what else runs here; counts, faults and cache verdicts do not."""
    names = ("large_first_event", "words_that_retokenise", "tool_calls", "error_in_stream", "contaminated_rerun")
    result = command("--json", "--repeats", "3", *(word for name in names for word in ("--only", name)))
    assert result.returncode in (0, 7), result.stderr
    facts = json.loads(result.stdout)
    checks = {check["name"]: {error["name"]: error for error in check["errors"]} for check in facts["checks"]}
    assert set(checks) == set(names)
    for name in ("large_first_event", "words_that_retokenise", "tool_calls"):
        assert checks[name]["tokens"]["value"] == 0
        assert checks[name]["TTFT"]["value"] is not None
    assert checks["error_in_stream"]["failures counted"]["value"] == 100
    assert checks["error_in_stream"]["good ones lost"]["value"] == 0
    assert checks["contaminated_rerun"]["flagged"]["value"] == 100
    assert facts["is_met"] == (result.returncode == 0)


def test_an_unknown_check_is_refused_with_the_way_to_name_them() -> None:
    result = command("--only", "nonsense")
    assert result.returncode == 2
    assert "nonsense" in result.stderr and "--list" in result.stderr
    with pytest.raises(UsageError):
        run_selftest(only=("nonsense",), is_list=True, is_json=False, num_repeats=1)


def test_a_missed_target_and_a_missing_figure_are_misses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    errors = (
        Error(name="too large", value=4.0, target=3.0, unit="ms"),
        Error(name="too negative", value=-4.0, target=3.0, unit="ms"),
        Error(name="missing", value=None, target=3.0, unit="ms"),
        Error(name="too small", value=99.0, target=100.0, unit="%", is_floor=True),
        Error(name="fine", value=-2.9, target=3.0, unit="ms"),
    )
    assert [error.is_met for error in errors] == [False, False, False, False, True]
    check = Check(name="made_up", about="", run=lambda _: errors)
    monkeypatch.setattr("deepdraft.selftest.runner.all_checks", lambda: (check,))
    assert run_selftest(only=(), is_list=False, is_json=False, num_repeats=1) is False
    printed = capsys.readouterr().out
    assert "1 of 5 targets met" in printed
    assert printed.count("MISSED") == 4


def test_errors_are_taken_against_the_servers_stamps() -> None:
    log = EventLog(gaps_us=(52_000, 20_000, 20_000), kinds="ttt", num_chars=(4, 4, 4), num_tokens=(1, 4, 4))
    trace = RequestTrace(events=log, usage=Usage(completion_tokens=9), end_s=0.1)
    measured = Measurement(
        trial_id="t", started_at_s=0.0, max_tokens=9, prompt=PromptFacts(asked_len=10), trace=trace
    )
    writes = [
        Write(time_s=100.051, num_tokens=1, kinds=("content",), num_events=1),
        Write(time_s=100.071, num_tokens=5, kinds=("content",), num_events=1),
        Write(time_s=100.091, num_tokens=9, kinds=("content",), num_events=1),
    ]
    truth = RequestTruth(request_id="r", ordinal=1, route="chat", is_stream=True, received_s=100.0, writes=writes)
    pair = Pair(measured=measured, truth=truth)
    assert ttft_s(trace) == pytest.approx(0.052)
    assert pair.ttft_error_s == pytest.approx(0.001, abs=1e-9)
    assert pair.tpot_error_frac == pytest.approx(0.0, abs=1e-9)
    slow = replace(measured, trace=replace(trace, events=replace(log, gaps_us=(52_000, 21_000, 21_000))))
    assert Pair(measured=slow, truth=truth).tpot_error_frac == pytest.approx(0.05, abs=1e-9)
