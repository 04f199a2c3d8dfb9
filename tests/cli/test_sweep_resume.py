"""A sweep that was cut short goes on exactly where it stopped: each (point, repeat) stands among the figures once."""

from __future__ import annotations

import dataclasses
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from deepdraft.records import SweepSpec
from deepdraft.records.file import read_run
from deepdraft.simulate.spec import Surface

SWEEP = ("--context-len", "200,300", "--repeats", "3", "--decode-len", "8")
ALL = {(length, 1): [0, 1, 2] for length in (200, 300)}


@pytest.fixture
def repeats(measured):
    """(point) -> the repeats among its figures, in order."""

    def of(path: Path):
        return {key: sorted(sample.repeat_index for sample in point.samples) for key, point in measured(path).items()}

    return of


@pytest.fixture
def killed(start, simulated, physics, tmp_path):
    """The results file of a sweep that was killed after four trials, and the server that is still there."""
    server = simulated(physics=physics(prefill_b_s=3e-4))
    sweep = start("sweep", server.url, *SWEEP, "--out", "out.jsonl")
    sweep.wait_until_said(r"^\[4/7\]")
    sweep.signal(signal.SIGKILL)
    sweep.end()
    return tmp_path / "out.jsonl", server


def test_after_kill_9_with_a_torn_line(killed, deepdraft, repeats, recorded, measured) -> None:
    out, _ = killed
    with out.open("ab") as file:
        file.write(b'{"kind":"measurement","schema_version":1,"trial_id":"len300-')
    before = read_run(out)
    assert before.damage
    assert not before.is_complete
    done_before = {trial.trial_id: trial for trial in before.trials}

    shown = deepdraft("show", out)
    assert shown.code == 0
    assert "the last line is torn" in shown.err
    assert "Damaged file: the last line is torn" in shown.out

    ran = deepdraft("sweep", "--resume", "out.jsonl")
    assert ran.code == 0, ran.err
    assert "repair: the last line was torn (60 bytes) and was cut off" in ran.err
    run = recorded(out)
    assert run.is_complete
    assert repeats(out) == ALL
    assert {"repair", "resume"} <= {note.topic for note in run.notes}
    # What was measured before stands as it was, and was not sent again.
    for trial_id, trial in done_before.items():
        assert [each for each in run.trials if each.trial_id == trial_id] == [trial]
    sent = Counter(result.prompt.sha256 for result in run.measurements)
    assert set(sent.values()) == {1}
    # A resumed sweep warms the server up anew; those are counted apart.
    assert measured(out)[200, 1].num_warmups == 2
    assert measured(out)[200, 1].num_superseded == 0


def test_with_the_original_command_line(killed, called, repeats, recorded) -> None:
    out, server = killed
    ran = called("sweep", server.url, *SWEEP, "--out", "out.jsonl", "--resume")
    assert ran.code == 0, ran.err
    assert repeats(out) == ALL
    assert recorded(out).is_complete
    ran = called("sweep", server.url, *SWEEP, "--resume", "out.jsonl", "--json")
    assert ran.code == 0
    assert "out.jsonl is complete: nothing to resume" in ran.err
    assert [point["ttft_s"]["num_samples"] for point in ran.json["points"]] == [3, 3]


def test_trials_cut_short_at_concurrency_are_measured_again(
    start, called, simulated, physics, measured, recorded, tmp_path
) -> None:
    server = simulated(physics=physics(prefill_b_s=5e-4, max_running=1))
    flags = ("--context-len", "200", "--concurrency", "3", "--repeats", "2", "--decode-len", "8", "--warmups", "0")
    sweep = start("sweep", server.url, *flags, "--out", "out.jsonl")
    file = tmp_path / "out.jsonl"
    sweep.wait_until(lambda: file.exists() and file.read_bytes().count(b'"kind":"measurement"') == 4)
    sweep.signal(signal.SIGKILL)
    sweep.end()
    cut = [result for result in read_run(file).measurements if result.trial_id == "len200-c3-r1"]
    assert cut  # on the disk as soon as they ended, though their trial did not
    ran = called("sweep", "--resume", "out.jsonl")
    assert ran.code == 0, ran.err
    point = measured(file)[200, 3]
    assert (point.num_ok, len(point.samples), point.num_superseded) == (6, 6, len(cut))
    assert [trial.trial_id for trial in recorded(file).trials] == ["len200-c3-r0", "len200-c3-r1"]


class TestRefused:
    """Files that can't be gone on with, and flags that don't fit: nothing is changed on the disk."""

    def test_other_flags(self, called, incomplete) -> None:
        before = incomplete.read_bytes()
        ran = called(
            "sweep", "--resume", incomplete, "--text", "code", "--repeats", "5", "--context-len", "200,300,400"
        )
        assert ran.code == 2
        message, hint = ran.said
        assert "--text is code, there prose" in message
        assert "--repeats is 5, there 3" in message
        assert "--context-len is 200,300,400, there 200,300" in message
        assert "--resume FILE alone" in (hint or "")
        assert incomplete.read_bytes() == before

    def test_two_files(self, called, incomplete) -> None:
        ran = called("sweep", "--resume", incomplete, "--out", "other.jsonl")
        assert ran.code == 2
        assert "different files" in ran.said[0]

    def test_no_file(self, called) -> None:
        ran = called("sweep", "http://127.0.0.1:1", "--context-len", "1k", "--resume")
        assert ran.code == 2
        assert "--out FILE --resume" in (ran.said[1] or "")

    def test_a_url_for_a_file(self, called) -> None:
        ran = called("sweep", "--context-len", "1k", "--resume", "http://127.0.0.1:1")
        assert ran.code == 2
        assert "--resume takes a results file" in ran.said[0]

    @pytest.mark.parametrize(
        ("content", "words"),
        [
            (None, "can't read"),
            (b"", "is empty"),
            (b"name,value\n1,2\n", "not a Deepdraft results file"),
            (b'{"kind":"header","schema_version":99}\n', "written by a newer Deepdraft"),
        ],
    )
    def test_a_file_that_is_none(self, called, tmp_path, content, words) -> None:
        path = tmp_path / "given.jsonl"
        if content is not None:
            path.write_bytes(content)
        ran = called("sweep", "--resume", path)
        assert ran.code == 5
        assert words in ran.said[0]
        assert not path.exists() if content is None else path.read_bytes() == content

    def test_another_model(self, called, incomplete, simulated) -> None:
        before = incomplete.read_bytes()
        other = simulated(surface=Surface(model="another"))
        ran = called("sweep", other.url, "--resume", incomplete)
        assert ran.code == 2
        assert "was measured on vllm with sim; this server is vllm with another" in ran.said[0]
        assert "--out" in (ran.said[1] or "")
        assert incomplete.read_bytes() == before

    def test_secrets_that_are_not_in_the_file(self, called, incomplete) -> None:
        rewrite(incomplete, extra_body={"api_key": "<redacted>"})
        ran = called("sweep", "--resume", incomplete)
        assert ran.code == 2
        assert "--extra-body" in ran.said[0]
        assert "again" in (ran.said[1] or "")


def test_a_file_that_is_there_is_not_overwritten(called, incomplete) -> None:
    before = incomplete.read_bytes()
    ran = called("sweep", "http://127.0.0.1:1", *SWEEP, "--out", incomplete)
    assert ran.code == 5
    assert "exists already" in ran.said[0]
    assert "--resume" in (ran.said[1] or "")
    assert incomplete.read_bytes() == before


def test_a_folder_that_is_not_there(called) -> None:
    ran = called("sweep", "http://127.0.0.1:1", *SWEEP, "--out", "no/such/out.jsonl")
    assert ran.code == 5
    assert "there is no folder no/such" in ran.said[0]


def test_out_and_resume_begin_a_file_that_is_not_there_yet(called, plain, brief, tmp_path) -> None:
    ran = called("sweep", plain.url, "--context-len", "200", *brief, "--out", "new.jsonl", "--resume")
    assert ran.code == 0, ran.err
    assert "new.jsonl does not exist yet: starting it" in ran.err
    assert (tmp_path / "new.jsonl").exists()


def test_elsewhere_with_more_patience_and_other_limits(called, incomplete, simulated, physics, recorded) -> None:
    # The server moved to another port and came back with a smaller pool: that is said, and measured on.
    server = simulated(physics=physics(kv_pool_tokens=280))
    ran = called("sweep", server.url, "--resume", incomplete, "--retries", "5", "--stall-limit", "9")
    assert ran.code == 1  # the longer point no longer fits
    assert f"resumed with Deepdraft 0.1.0, at {server.url}" in ran.err
    assert "the server's kv_pool_tokens was 1000000, now 280" in ran.err
    assert "not sent: 300 tokens x 1" in ran.err
    run = recorded(incomplete)
    assert run.is_complete
    assert [refusal.context_len for refusal in run.refusals] == [300]
    assert sum(1 for trial in run.trials if trial.context_len == 200) == 3


@pytest.fixture(scope="module")
def complete(tmp_path_factory, plain) -> bytes:
    """A complete results file of SWEEP."""
    import subprocess
    import sys

    path = tmp_path_factory.mktemp("complete") / "out.jsonl"
    words = [sys.executable, "-m", "deepdraft", "sweep", plain.url, *SWEEP, "--warmups", "0", "--out", str(path)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    return path.read_bytes()


@pytest.fixture
def incomplete(complete, tmp_path) -> Path:
    """The same, cut off after its third trial."""
    lines = complete.splitlines(keepends=True)
    places = [index for index, line in enumerate(lines) if line.startswith(b'{"kind":"trial"')]
    path = tmp_path / "incomplete.jsonl"
    path.write_bytes(b"".join(lines[: places[2] + 1]))
    return path


def rewrite(path: Path, **spec_fields) -> None:
    """Change fields of the spec in a file's header."""
    lines = path.read_bytes().splitlines(keepends=True)
    header = read_run(path).header
    spec: SweepSpec = dataclasses.replace(header.spec, **spec_fields)
    lines[0] = msgspec.json.encode(dataclasses.replace(header, spec=spec)) + b"\n"
    path.write_bytes(b"".join(lines))
