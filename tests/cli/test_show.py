"""`deepdraft show`: the table, JSON and CSV of whole, cut and damaged files."""

from __future__ import annotations

import csv
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from deepdraft.simulate.process import running
from deepdraft.simulate.spec import Confounds, Fault, Physics, SimulateSpec

FIGURES = ("ttft_s", "tpot_s", "prefill_tok_s", "decode_tok_s", "step_s", "acceptance_len")
GUARDS = {
    "cold_prefix",
    "prompt_len",
    "early_stop",
    "truncation",
    "bundled_tokens",
    "simulated_acceptance",
    "event_clock",
    "background_load",
    "client_lag",
    "drift",
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> bytes:
    """The results file of a sweep with a drafter, a failed request and a point that does not fit."""
    path = tmp_path_factory.mktemp("finished") / "out.jsonl"
    spec = SimulateSpec(
        dialect="sglang",
        physics=Physics(prefill_a_s=0.02, step_d_s=0.004, committed_len_pattern=(1, 2, 3), max_context_len=4_000),
        confounds=Confounds(cached_tokens_report="usage"),
        faults=(Fault(kind="cut", at=(2,), min_prompt_len=900),),
    )
    with running(spec) as server:
        words = ["sweep", server.url, "--context-len", "300,1k,8k", "--decode-len", "24", "--repeats", "3", "--out"]
        done = subprocess.run(
            [sys.executable, "-m", "deepdraft", *words, str(path)], capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 1, done.stderr
    return path.read_bytes()


@pytest.fixture
def file(finished, tmp_path) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_bytes(finished)
    return path


def check_summary(value) -> None:
    if value is None:
        return
    assert set(value) == {"median", "low", "high", "num_samples"}
    assert value["low"] <= value["median"] <= value["high"]
    assert isinstance(value["num_samples"], int) and value["num_samples"] >= 1


def check_points(points) -> None:
    for point in points:
        assert isinstance(point["context_len"], int) and isinstance(point["concurrency"], int)
        for name in FIGURES:
            check_summary(point[name])
        assert {guard["name"] for guard in point["guards"]} == GUARDS
        for guard in point["guards"]:
            assert guard["state"] in ("verified", "violated", "not_verifiable")
            assert guard["evidence"]


def test_the_table(called, file) -> None:
    ran = called("show", file)
    assert ran.code == 0
    assert ran.err == ""
    lines = ran.out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines if line.startswith(("  300 ", " 1.0k "))] == ["300", "1.0k"]
    text = " ".join(ran.out.split())
    assert "Failed (1.0k): 1 of 3 requests: StreamEndedEarly" in text
    assert "Not sent (8.0k): 8,000 prompt + 24 output tokens exceed the server's context limit of 4,000" in text


def test_json(called, file) -> None:
    ran = called("show", file, "--json")
    assert ran.code == 0
    found = ran.json
    assert [(point["context_len"], point["concurrency"]) for point in found["points"]] == [(300, 1), (1000, 1)]
    check_points(found["points"])
    short, long = found["points"]
    assert short["ttft_s"]["num_samples"] == 3
    assert long["ttft_s"]["num_samples"] == 2
    assert (long["num_ok"], long["num_failed"]) == (2, 1)
    assert short["acceptance_len"]["median"] == pytest.approx(2.0, rel=0.1)
    assert short["step_s"]["median"] == pytest.approx(2 * short["tpot_s"]["median"], rel=0.15)
    assert short["step_s"]["low"] > 0.5 * 0.004  # a step; how much longer it takes is the machine's business
    assert found["is_complete"] is True
    assert [refusal["context_len"] for refusal in found["refusals"]] == [8000]
    # Nothing is said twice: the medians are those of the table.
    table = called("show", file).out
    assert f"{short['decode_tok_s']['median']:.1f}" in table


def test_what_is_not_known_is_null_and_never_zero(called, file, finished) -> None:
    """Every request failed."""
    lines = [line for line in finished.splitlines(keepends=True) if b'"kind":"trial"' not in line]
    failure = b'"failure":{"name":"Stalled","message":"no answer"}'
    file.write_bytes(b"".join(line.replace(b'"failure":null', failure) for line in lines))
    ran = called("show", file, "--json")
    check_points(ran.json["points"])
    for point in ran.json["points"]:
        assert [point[name] for name in FIGURES] == [None] * len(FIGURES)
    assert "No point gave figures." in called("show", file).out


def test_csv(called, file) -> None:
    ran = called("show", file, "--csv")
    assert ran.code == 0
    rows = list(csv.DictReader(io.StringIO(ran.out)))
    assert [(row["context_len"], row["concurrency"]) for row in rows] == [("300", "1"), ("1000", "1")]
    points = called("show", file, "--json").json["points"]
    for row, point in zip(rows, points, strict=True):
        for name in FIGURES:
            assert float(row[f"{name}_median"]) == pytest.approx(point[name]["median"])
        assert {name.removeprefix("guard_") for name in row if name.startswith("guard_")} == GUARDS


def test_a_file_that_was_cut_short(called, file, finished) -> None:
    lines = finished.splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:-4]) + lines[-4][:50])
    ran = called("show", file)
    assert ran.code == 0
    assert ran.err.startswith(f"deepdraft: {file}: the last line is torn (50 bytes)")
    assert "Not complete: the file has no end line" in ran.out
    found = called("show", file, "--json").json
    assert found["is_complete"] is False
    assert found["outcome"] is None
    assert found["damage"]
    check_points(found["points"])


def test_a_file_that_was_only_begun(called, file, finished) -> None:
    file.write_bytes(finished.splitlines(keepends=True)[0])
    ran = called("show", file)
    assert ran.code == 0
    assert "No point gave figures." in ran.out
    assert called("show", file, "--json").json["points"] == []
    assert called("show", file, "--csv").out.splitlines()[0].startswith("run_id,")


def test_a_damaged_line_in_the_middle(called, file, finished) -> None:
    lines = finished.splitlines(keepends=True)
    place = next(
        index for index, line in enumerate(lines) if b'"kind":"measurement"' in line and b"len300-c1-r1" in line
    )
    lines[place] = lines[place][:100] + b"\x00\x00\xff garbage\n"
    file.write_bytes(b"".join(lines))
    ran = called("show", file)
    assert ran.code == 0
    assert f"line {place + 1} can't be read" in ran.err
    assert f"Damaged file: line {place + 1} can't be read" in ran.out
    point = called("show", file, "--json").json["points"][0]
    assert point["ttft_s"]["num_samples"] == 2


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "can't read"),
        (b"", "is empty"),
        (b"\x00\x01\x02", "not a Deepdraft results file"),
        (b"{}\n", "not a Deepdraft results file"),
        (b'{"kind":"header","schema_version":7}\n', "newer Deepdraft (schema 7; this one reads 3)"),
    ],
)
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_file_that_is_none(called, tmp_path, content, words, form) -> None:
    path = tmp_path / "given.jsonl"
    if content is not None:
        path.write_bytes(content)
    ran = called("show", path, *form)
    assert ran.code == 5
    assert ran.out == ""
    assert words in ran.said[0]


def test_a_folder(called, tmp_path) -> None:
    ran = called("show", tmp_path)
    assert ran.code == 5
    assert "Is a directory" in ran.said[0]


@pytest.mark.parametrize("form", [(), ("--json",), ("--csv",)])
def test_a_reader_that_goes_away(file, form) -> None:
    """As `| head -1`."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "deepdraft", "show", file, *form],
            stdout=writing,
            stderr=subprocess.PIPE,
            timeout=60,
        )
    finally:
        os.close(writing)
    assert done.stderr == b""
    assert done.returncode == 0
