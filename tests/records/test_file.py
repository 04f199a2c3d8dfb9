"""Results files: what a crash, a full disk or a foreign file does to them."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.errors import DiskFull, ResultsError
from deepdraft.records import (
    SCHEMA_VERSION,
    Capabilities,
    End,
    EventLog,
    Header,
    Measurement,
    Note,
    PromptFacts,
    RequestTrace,
    SweepSpec,
)
from deepdraft.records.file import ResultsWriter, read_run

HEADER = Header(
    run_id="r",
    created_at="2026-01-01T00:00:00Z",
    deepdraft_version="0",
    command_line=("deepdraft", "sweep"),
    spec=SweepSpec(url="http://localhost:1", context_lens=(1000,)),
    capabilities=Capabilities(engine="openai", detected_by="test"),
)


def measurement(index: int) -> Measurement:
    return Measurement(
        trial_id=f"t{index}",
        started_at_s=float(index),
        max_tokens=8,
        prompt=PromptFacts(asked_len=1000),
        trace=RequestTrace(events=EventLog(gaps_us=(500, 20), kinds="tt", num_chars=(3, 4)), end_s=0.1),
    )


def written(path: Path, num_measurements: int) -> bytes:
    writer = ResultsWriter.create(path, HEADER)
    for index in range(num_measurements):
        writer.append(measurement(index))
    writer.close()
    return path.read_bytes()


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    written(path, 3)
    run = read_run(path)
    assert run.header == HEADER
    assert run.measurements == tuple(measurement(index) for index in range(3))
    assert run.damage == ()
    assert not run.is_complete


def test_a_file_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    before = written(path, 1)
    with pytest.raises(ResultsError) as caught:
        ResultsWriter.create(path, HEADER)
    assert "--resume" in (caught.value.hint or "")
    assert path.read_bytes() == before


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_a_torn_tail_costs_only_the_torn_line(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("torn") / "run.jsonl"
    content = written(path, 3)
    ends = [index for index, byte in enumerate(content) if byte == 10]
    cut = data.draw(st.integers(min_value=ends[0] + 1, max_value=len(content) - 1))
    path.write_bytes(content[:cut])
    num_whole = sum(1 for end in ends if end < cut) - 1
    last_is_whole = content[:cut].endswith(b"\n")

    # A line whose newline alone is missing still reads; either way no whole line is lost.
    assert len(read_run(path).measurements) >= num_whole

    writer, repair = ResultsWriter.resume(path)
    writer.append(End(at_s=1.0, outcome="complete"))
    writer.close()
    run = read_run(path)
    assert len(run.measurements) == num_whole
    assert run.damage == ()
    assert run.is_complete
    assert (repair is None) == last_is_whole
    if repair:
        assert "torn" in repair


def test_garbage_in_the_middle_is_named_and_the_rest_counts(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    lines = written(path, 3).splitlines(keepends=True)
    lines[2] = b"\x00" * 30 + b"\n"
    path.write_bytes(b"".join(lines))
    run = read_run(path)
    assert len(run.measurements) == 2
    assert len(run.damage) == 1 and "line 3" in run.damage[0]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"hello\n", "not a Deepdraft results file"),
        (b'{"a": 1}\n', "not a Deepdraft results file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not a Deepdraft results file"),
        (b'{"kind":"note","schema_version":1,"at_s":0,"topic":"x","message":"y"}\n', "not a Deepdraft results file"),
        (b'{"kind":"header","schema_version":99}\n', "newer Deepdraft"),
    ],
)
def test_foreign_files_get_one_clear_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(ResultsError) as caught:
        read_run(path)
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def test_a_missing_file_and_a_folder_are_errors_too(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(ResultsError):
            read_run(path)
    with pytest.raises(ResultsError):
        ResultsWriter.create(tmp_path / "no" / "such" / "folder.jsonl", HEADER)


_FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from deepdraft.errors import DiskFull
from deepdraft.records import Note
from deepdraft.records.file import ResultsWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = Path(sys.argv[1])
writer, _ = ResultsWriter.resume(path)
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 100, resource.RLIM_INFINITY))
try:
    writer.append(Note(at_s=1.0, topic="health", message="x" * 500))
except DiskFull as error:
    print(error.message)
"""


def test_a_full_disk_leaves_whole_lines_only(tmp_path: Path) -> None:
    """A size limit makes the kernel write the first 100 bytes and refuse the rest, as a full disk does."""
    path = tmp_path / "run.jsonl"
    before = written(path, 2)
    result = subprocess.run([sys.executable, "-c", _FULL_DISK, str(path)], capture_output=True, text=True, check=True)
    assert "no room" in result.stdout
    assert path.read_bytes() == before
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != len(before) + 100


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_no_space_left_is_told_as_such() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    writer = ResultsWriter(Path("/dev/full"), descriptor)
    with pytest.raises(DiskFull) as caught:
        writer.append(Note(at_s=0.0, topic="health", message="x"))
    assert "resume" in (caught.value.hint or "")
    writer.close()


def test_every_line_names_its_kind_and_schema_version(tmp_path: Path) -> None:
    for line in written(tmp_path / "run.jsonl", 2).splitlines():
        record = json.loads(line)
        assert list(record)[:2] == ["kind", "schema_version"]
        assert record["schema_version"] == SCHEMA_VERSION


def test_a_long_answer_is_stored_compactly() -> None:
    """100,000 events: well under a byte count that would make a long sweep unwieldy."""
    num_events = 100_000
    log = EventLog(gaps_us=(21_034,) * num_events, kinds="t" * num_events, num_chars=(4,) * num_events)
    assert len(msgspec.json.encode(log)) < 10 * num_events


def test_two_processes_never_write_one_file(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    first = ResultsWriter.create(path, HEADER)
    with pytest.raises(ResultsError) as caught:
        ResultsWriter.resume(path)
    assert "another process" in caught.value.message
    first.close()
    second, repair = ResultsWriter.resume(path)
    second.close()
    assert repair is None
