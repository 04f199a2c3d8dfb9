"""A comparison that was cut short goes on as a whole where it stopped: each repeat of each side once, in turns."""

from __future__ import annotations

import dataclasses
import datetime
import signal
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from deepdraft.records import Run
from deepdraft.records.file import read_run
from deepdraft.simulate.spec import Fault, Surface

MEASURE = ("--context-len", "200,300", "--decode-len", "8", "--warmups", "0")
ALL = sorted((length, repeat_index) for length in (200, 300) for repeat_index in range(4))
RESUMED = ("compare", "--run", "--resume", "x")


def measured_once(run: Run) -> list[tuple[int, int]]:
    """(context length, repeat) of the trials; no prompt of a trial that counts was sent twice."""
    kept = {trial.trial_id for trial in run.trials}
    sent = Counter(each.prompt.sha256 for each in run.measurements if each.trial_id in kept)
    assert set(sent.values()) == {1}
    return sorted((trial.context_len, trial.repeat_index) for trial in run.trials)


def order(*runs: Run) -> list[str]:
    """Whose trials of 200 tokens followed each other, by the clocks in the files: ABBA..."""
    began = []
    for side, run in zip("AB", runs, strict=True):
        created_s = datetime.datetime.fromisoformat(run.header.created_at).timestamp()
        began += [(created_s + each.started_at_s, side) for each in run.trials if each.context_len == 200]
    return [side for _, side in sorted(began)]


@pytest.fixture
def sides(tmp_path):
    """The runs in x-a.jsonl and x-b.jsonl; every line must be whole."""

    def read() -> list[Run]:
        runs = [read_run(tmp_path / f"x-{side}.jsonl") for side in "ab"]
        assert not any(run.damage for run in runs)
        return runs

    return read


@pytest.fixture(scope="module")
def complete(tmp_path_factory, plain) -> list[bytes]:
    """The files of a whole comparison of a server with itself."""
    import subprocess
    import sys

    folder = tmp_path_factory.mktemp("complete")
    words = [sys.executable, "-m", "deepdraft", "compare", "--run", plain.url, plain.url, *MEASURE, "--out", "x"]
    subprocess.run(words, check=True, capture_output=True, timeout=60, cwd=folder)
    return [(folder / f"x-{side}.jsonl").read_bytes() for side in "ab"]


@pytest.fixture
def cut(complete, tmp_path):
    """Write both files, each cut off after that many of its 8 trials, or whole."""

    def write(*num_trials: int | None) -> list[Path]:
        paths = []
        for side, content, num in zip("ab", complete, num_trials, strict=True):
            lines = content.splitlines(keepends=True)
            places = [index for index, line in enumerate(lines) if line.startswith(b'{"kind":"trial"')]
            path = tmp_path / f"x-{side}.jsonl"
            path.write_bytes(content if num is None else b"".join(lines[: places[num - 1] + 1]))
            paths.append(path)
        return paths

    return write


def test_after_ctrl_c_it_goes_on_in_turns(start, called, simulated, physics, sides) -> None:
    servers = [simulated(physics=physics(prefill_b_s=2e-4)) for _ in "AB"]
    comparison = start("compare", "--run", *(server.url for server in servers), *MEASURE, "--out", "x")
    comparison.wait_until_said(r"^A: \[3/8\]")
    comparison.signal(signal.SIGINT)
    ran = comparison.end()
    assert ran.code == 130
    assert ran.said == ("interrupted; what was measured is kept", "go on with --run --resume x")
    before = sides()
    assert all(run.ends[-1].outcome == "interrupted" for run in before)
    assert sum(len(run.trials) for run in before) < 16

    ran = called(*RESUMED, "--json")
    assert ran.code == 0, ran.err
    after = sides()
    for earlier, run in zip(before, after, strict=True):
        assert run.is_complete
        assert measured_once(run) == ALL
        assert run.trials[: len(earlier.trials)] == earlier.trials  # what was measured stands as it was
    assert "".join(order(*after)) == "ABBAABBA"
    for point in ran.json["points"]:
        assert point["figures"]["tpot_s"]["is_interleaved"]
        assert point["figures"]["tpot_s"]["num_pairs"] == 4


def test_after_kill_9_with_the_original_command_line(start, called, simulated, physics, sides) -> None:
    servers = [simulated(physics=physics(prefill_b_s=2e-4)) for _ in "AB"]
    words = ("compare", "--run", *(server.url for server in servers), *MEASURE, "--out", "x")
    comparison = start(*words)
    comparison.wait_until_said(r"^B: \[4/8\]")
    comparison.signal(signal.SIGKILL)
    comparison.end()
    ran = called(*words, "--resume")
    assert ran.code == 0, ran.err
    assert "ms/token" in ran.out and "results in x-a.jsonl, x-b.jsonl" in ran.err
    after = sides()
    assert [measured_once(run) for run in after] == [ALL, ALL]
    assert "".join(order(*after)) == "ABBAABBA"


def test_a_lost_server_that_came_back_elsewhere(called, simulated, sides) -> None:
    dying = simulated(faults=(Fault(kind="die", min_prompt_len=250, at=(2,)),))
    steady = simulated()
    ran = called("compare", "--run", steady.url, dying.url, *MEASURE, "--out", "x", "--wait-server", "0.2", "--quiet")
    assert ran.code == 4
    assert ran.said[1] == "what was measured is kept; go on with --run --resume x"
    assert [run.ends[-1].outcome for run in sides()] == ["interrupted", "server_lost"]
    back = simulated()
    ran = called("compare", "--run", steady.url, back.url, "--resume", "x")
    assert ran.code == 0, ran.err
    assert f"B: resume: resumed with Deepdraft 0.1.0, at {back.url}" in ran.err
    assert [measured_once(run) for run in sides()] == [ALL, ALL]


def test_a_side_whose_file_was_never_begun(called, simulated, sides) -> None:
    steady = simulated()
    ran = called("compare", "--run", steady.url, "http://127.0.0.1:1", *MEASURE, "--out", "x", "--quiet")
    assert ran.code == 3
    ran = called(*RESUMED, "--quiet")
    assert ran.code == 3  # the servers of the first run, and B is still not there
    assert "x-b.jsonl does not exist yet: starting it" in ran.err
    ran = called("compare", "--run", steady.url, simulated().url, "--resume", "x", "--quiet")
    assert ran.code == 0, ran.err
    first, second = sides()
    assert [measured_once(run) for run in (first, second)] == [ALL, ALL]
    assert dataclasses.replace(second.header.spec, url=first.header.spec.url) == first.header.spec


def test_a_side_that_is_done_is_left_alone(called, cut, sides) -> None:
    whole, _ = cut(None, 7)
    content = whole.read_bytes()
    ran = called(*RESUMED)
    assert ran.code == 0, ran.err
    assert "B: [8/8]" in ran.err and "A: " not in ran.err
    assert whole.read_bytes() == content
    assert [measured_once(run) for run in sides()] == [ALL, ALL]


def test_when_both_are_done_nothing_is_sent(called, cut, plain, complete) -> None:
    paths = cut(None, None)
    ran = called(*RESUMED, "--json")
    assert ran.code == 0, ran.err
    assert "x-a.jsonl, x-b.jsonl are complete: nothing to resume" in ran.err
    assert [path.read_bytes() for path in paths] == complete
    assert ran.json["points"] == called("compare", "x-a.jsonl", "x-b.jsonl", "--json").json["points"]


def test_out_and_resume_begin_what_is_not_there_yet(called, plain, sides) -> None:
    ran = called("compare", "--run", plain.url, plain.url, *MEASURE, "--repeats", "2", "--out", "x", "--resume")
    assert ran.code == 0, ran.err
    assert "x does not exist yet: starting it" in ran.err
    assert all(run.is_complete for run in sides())


class TestRefused:
    """Flags, servers and files that don't fit: nothing is changed on the disk."""

    @pytest.fixture(autouse=True)
    def unchanged(self, cut):
        paths = cut(3, 2)
        before = [path.read_bytes() for path in paths]
        yield
        assert [path.read_bytes() for path in paths] == before

    def test_other_flags(self, called) -> None:
        ran = called(*RESUMED, "--text", "code", "--repeats", "6", "--context-len", "200,400")
        assert ran.code == 2
        message, hint = ran.said
        assert "--text is code, there prose" in message
        assert "--repeats is 6, there 4" in message
        assert "--context-len is 200,400, there 200,300" in message
        assert "--resume" in (hint or "")

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("--run", "--resume"), "--resume needs a file"),
            (("--run", "--resume", "http://h"), "--resume takes what the results files' names begin with"),
            (("--run", "--resume", "x", "--out", "y"), "--out and --resume name different files"),
            (("--run", "--resume", "x-a.jsonl"), "x-a.jsonl is one file"),
            (("--run", "http://h", "--resume", "x"), "--run takes two servers or more"),
            (("--resume", "x"), "--resume is for measuring"),
            (("--run", "embedded", "embedded --drafter ngram", "--resume", "x"), "how the embedded server drafts is"),
        ],
    )
    def test_words(self, called, words, message) -> None:
        ran = called("compare", *words)
        assert ran.code == 2
        assert ran.said[0].startswith(message) or message in ran.said[0]

    def test_files_that_are_not_there(self, called) -> None:
        ran = called("compare", "--run", "--resume", "no")
        assert ran.code == 5
        assert "no-a.jsonl" in ran.said[0]

    def test_a_new_run_does_not_overwrite(self, called, plain) -> None:
        ran = called("compare", "--run", plain.url, plain.url, *MEASURE, "--out", "x")
        assert ran.code == 5
        assert ran.said == (
            "x-a.jsonl exists already",
            "continue it with --run --resume x, or name other files with --out",
        )

    def test_another_model(self, called, simulated, plain) -> None:
        other = simulated(surface=Surface(model="another"))
        ran = called("compare", "--run", other.url, other.url, "--resume", "x", "--quiet")
        assert ran.code == 2
        assert "was measured on vllm with sim; this server is vllm with another" in ran.said[0]


def rewrite(path: Path, *, command_line: tuple[str, ...] | None = None, **spec_fields) -> None:
    """Change what a file's header says."""
    lines = path.read_bytes().splitlines(keepends=True)
    header = read_run(path).header
    header = dataclasses.replace(header, spec=dataclasses.replace(header.spec, **spec_fields))
    if command_line is not None:
        header = dataclasses.replace(header, command_line=command_line)
    path.write_bytes(msgspec.json.encode(header) + b"\n" + b"".join(lines[1:]))


def test_servers_that_change_places(called, cut) -> None:
    for path, url in zip(cut(3, 2), ("http://127.0.0.1:1", "http://127.0.0.1:2"), strict=True):
        rewrite(path, url=url)
    ran = called("compare", "--run", "http://127.0.0.1:2", "http://127.0.0.1:1", "--resume", "x")
    assert ran.code == 2
    assert ran.said[0] == "http://127.0.0.1:2 is B in these files, not A"
    words = ("embedded --drafter ngram", "embedded")
    for path, flags in zip(cut(3, 2), ((), ("--drafter", "ngram")), strict=True):
        rewrite(path, url="embedded", embedded_flags=flags)
    ran = called("compare", "--run", *words, "--resume", "x")
    assert ran.code == 2
    assert ran.said[0] == "embedded --drafter ngram is B in these files, not A"


def test_files_of_different_measurements(called, cut) -> None:
    _, second = cut(3, 2)
    rewrite(second, text="code")
    ran = called(*RESUMED)
    assert ran.code == 2
    assert ran.said[0] == "x-b.jsonl was made with other settings than x-a.jsonl"


def test_fewer_servers_than_files(called, cut, tmp_path, plain) -> None:
    first, _ = cut(3, 2)
    (tmp_path / "x-c.jsonl").write_bytes(first.read_bytes())
    ran = called("compare", "--run", plain.url, plain.url, "--resume", "x")
    assert ran.code == 2
    assert ran.said[0] == "2 servers are given, and x-c.jsonl is there too"


def test_a_switch_command_is_not_run_unless_it_is_given_again(called, cut, tmp_path) -> None:
    words = ("deepdraft", "compare", "--run", "http://h", "--switch-command", "touch ran {}", "--context-len", "200")
    for path in cut(3, 2):
        rewrite(path, command_line=words)
    ran = called(*RESUMED)
    assert ran.code == 2
    assert ran.said == ("these servers were switched over", "give the URL and --switch-command again")
    assert not (tmp_path / "ran").exists()


def test_files_that_do_not_say_which_servers(called, cut) -> None:
    for path in cut(3, 2):
        rewrite(path, command_line=("deepdraft", "sweep", "http://h"))
    ran = called(*RESUMED)
    assert ran.code == 2
    assert ran.said == (
        "x-a.jsonl does not say which servers were compared",
        "give them again, in the same order",
    )
