from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import pytest

from deepdraft.cli.output import write_out
from deepdraft.errors import ResultsError


@pytest.fixture
def standard_output(monkeypatch):
    """Standard output on a descriptor of our own, as the interpreter sets it up."""
    opened: list[int] = []

    def on(descriptor: int) -> None:
        opened.append(descriptor)
        monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.FileIO(descriptor, "w", closefd=False)))

    yield on
    for descriptor in opened:
        os.close(descriptor)


def test_text_goes_out_at_once(standard_output) -> None:
    reading, writing = os.pipe()
    standard_output(writing)
    write_out("a table\n")
    assert os.read(reading, 100) == b"a table\n"
    os.close(reading)


def test_a_reader_that_went_away_is_not_an_error(standard_output) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    standard_output(writing)
    write_out("a table\n")
    write_out("more of it\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_a_full_disk_is(standard_output) -> None:
    standard_output(os.open("/dev/full", os.O_WRONLY))
    with pytest.raises(ResultsError, match="can't write to standard output: No space left"):
        write_out("a table\n")
