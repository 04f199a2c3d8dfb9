"""A full disk: exit code 5, whole lines only in the file, and the table still shows what was measured."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from deepdraft.records.file import read_run

SWEEP = ("--context-len", "200", "--repeats", "4", "--decode-len", "8", "--warmups", "0")
# A file may grow to so many bytes; beyond it write() fails as on a full disk, when its signal is ignored.
LIMITED = """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
"""


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own that is soon full."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def sizes(deepdraft, plain, tmp_path) -> tuple[int, int]:
    """Bytes of a header with its first notes, and of a whole file."""
    assert deepdraft("sweep", plain.url, *SWEEP, "--out", "whole.jsonl").code == 0
    content = (tmp_path / "whole.jsonl").read_bytes()
    return content.index(b'{"kind":"measurement"'), len(content)


def test_a_file_that_may_not_grow(deepdraft, plain, tmp_path, measured, recorded) -> None:
    head_bytes, whole_bytes = sizes(deepdraft, plain, tmp_path)
    limit = head_bytes + (whole_bytes - head_bytes) * 6 // 10
    ran = deepdraft("sweep", plain.url, *SWEEP, "--out", "out.jsonl", launcher=LIMITED.format(limit=limit))
    assert ran.code == 5
    message, hint = ran.said
    assert message.startswith("no room to write out.jsonl")
    assert "--resume out.jsonl" in (hint or "")
    out = tmp_path / "out.jsonl"
    assert out.stat().st_size <= limit
    in_file = len(recorded(out).trials)  # every line is whole
    assert 1 <= in_file < 4
    # The table shows also what the disk did not take.
    assert f"{'spread'}   n" in ran.out
    (row,) = (line for line in ran.out.splitlines() if line.startswith("  200 "))
    assert int(row.split()[-1]) == in_file + 1
    assert "of its lines could not be written)" in ran.out

    ran = deepdraft("sweep", "--resume", "out.jsonl")
    assert ran.code == 0, ran.err
    assert len(measured(out)[200, 1].samples) == 4
    assert measured(out)[200, 1].num_superseded == 0
    assert recorded(out).is_complete


def test_requests_in_flight_are_given_up(deepdraft, simulated, physics, tmp_path, recorded) -> None:
    server = simulated(physics=physics(step_d_s=0.005))
    limit = 30_000
    flags = ("--context-len", "200", "--concurrency", "4", "--requests", "300", "--repeats", "1", "--warmups", "0")
    ran = deepdraft(
        "sweep", server.url, *flags, "--decode-len", "8", "--out", "out.jsonl", launcher=LIMITED.format(limit=limit)
    )
    assert ran.code == 5
    assert "no room" in ran.said[0]
    run = recorded(tmp_path / "out.jsonl")
    assert 0 < len(run.measurements) < 60
    (row,) = (line for line in ran.out.splitlines() if line.startswith("  200 "))
    assert int(row.split()[-1]) >= len(run.measurements)


def test_a_file_that_can_not_even_be_begun(deepdraft, plain, tmp_path) -> None:
    ran = deepdraft("sweep", plain.url, *SWEEP, "--out", "out.jsonl", launcher=LIMITED.format(limit=200))
    assert ran.code == 5
    assert "no room to write out.jsonl" in ran.said[0]
    assert ran.out == ""
    assert not (tmp_path / "out.jsonl").exists()


def test_a_disk_that_is_full(deepdraft, plain, small_disk, tmp_path, measured, recorded) -> None:
    head_bytes, _ = sizes(deepdraft, plain, tmp_path)
    room = small_disk / "taken"
    free_bytes = os.statvfs(small_disk).f_bavail * os.statvfs(small_disk).f_frsize
    room.write_bytes(b"x" * (free_bytes - -(-head_bytes // 4096) * 4096))
    out = small_disk / "out.jsonl"
    ran = deepdraft("sweep", plain.url, *SWEEP, "--repeats", "20", "--out", out)
    assert ran.code == 5
    assert "No space left on device" in ran.said[0]
    assert read_run(out).damage == ()
    assert "results in" in ran.out
    room.unlink()
    ran = deepdraft("sweep", "--resume", out)
    assert ran.code == 0, ran.err
    assert len(measured(out)[200, 1].samples) == 20
    assert recorded(out).is_complete


def test_standard_output_that_is_full(deepdraft, plain, tmp_path) -> None:
    launcher = "import os, sys\nos.dup2(os.open('/dev/full', os.O_WRONLY), 1)"
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    ran = deepdraft("sweep", plain.url, *SWEEP, "--out", "out.jsonl", launcher=launcher)
    assert ran.code == 5
    assert ran.said[0] == "can't write to standard output: No space left on device"
    assert read_run(tmp_path / "out.jsonl").is_complete
