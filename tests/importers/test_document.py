"""Files as they lie about: cut short, damaged, with a byte order mark, or no JSON at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.errors import ResultsError
from deepdraft.importers.document import document_of, read_document

OBJECTS = [{"a": index, "text": "x" * index} for index in range(5)]


def test_one_object_a_list_and_lines() -> None:
    assert document_of("f", json.dumps(OBJECTS[0], indent=2).encode()).objects == (OBJECTS[0],)
    assert document_of("f", json.dumps(OBJECTS, indent=2).encode()).objects == tuple(OBJECTS)
    lines = "\n".join(json.dumps(one) for one in OBJECTS)
    assert document_of("f", b"\xef\xbb\xbf" + lines.encode()).objects == tuple(OBJECTS)


def test_a_damaged_line_is_named_and_the_others_kept() -> None:
    lines = [json.dumps(one) for one in OBJECTS]
    lines[2] = lines[2][:4]
    lines[4] = lines[4][:4]
    found = document_of("f", "\n".join(lines).encode())
    assert found.objects == (OBJECTS[0], OBJECTS[1], OBJECTS[3])
    assert [loss.split(" (")[0] for loss in found.losses] == ["line 3 can't be read", "the last line is cut short"]


@given(st.integers(1, 200))
def test_a_list_cut_anywhere_keeps_its_whole_entries(length: int) -> None:
    whole = json.dumps(OBJECTS, indent=1)
    found = document_of("f", whole[:length].encode())
    assert found.objects == tuple(OBJECTS[: len(found.objects)])
    num_whole = sum(
        1 for index in range(len(OBJECTS)) if json.dumps(OBJECTS[: index + 1], indent=1)[:-2] in whole[:length]
    )
    assert len(found.objects) == num_whole
    if 0 < num_whole < len(OBJECTS):
        assert "breaks off" in found.losses[0]


def test_logs_and_nonsense_have_no_objects() -> None:
    for content in (b"[2026-11-29 10:00:00] started", b"hello", b"\xff\xfe\x00", b"{", b"[" * 100_000):
        assert document_of("f", content).objects == ()


def test_nan_reads_as_unknown() -> None:
    assert document_of("f", b'{"a": NaN, "b": Infinity}').first == {"a": None, "b": None}


def test_missing_and_empty_files_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="can't read"):
        read_document(tmp_path / "none.json")
    (tmp_path / "empty.json").write_bytes(b" \n")
    with pytest.raises(ResultsError, match="is empty"):
        read_document(tmp_path / "empty.json")
    with pytest.raises(ResultsError, match="can't read"):
        read_document(tmp_path)
