"""A component's results go to the disk line by line and come back as they were; other files are told apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepdraft.errors import ResultsError
from deepdraft.records.component import ComponentCase, ComponentHeader, ComponentRepeat
from deepdraft.records.component_file import is_component_file, read_component_run
from deepdraft.records.file import ResultsWriter, read_run
from deepdraft.records.line import End, Note

HEADER = ComponentHeader(
    run_id="0123456789ab",
    created_at="2026-11-30T00:00:00.000+00:00",
    deepdraft_version="0.1.0",
    command_line=("deepdraft", "bench", "tree"),
    component="tree",
    settings={"budgets": [16]},
    environment={"torch": "2.13"},
)
CASE = ComponentCase(
    name="7 x 4096, budget 16, whole",
    facts={"tree_budget": 16},
    work={"read": 114688.0},
    repeats=(ComponentRepeat(seconds=1e-4, rates={"read": 2e10}, peers_s={"plain": 2e-4}),),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A whole file."""
    path = tmp_path / "tree.jsonl"
    writer = ResultsWriter.create(path, HEADER)
    writer.append(CASE)
    writer.append(Note(at_s=1.0, topic="x", message="y"), End(at_s=2.0, outcome="complete"))
    writer.close()
    return path


def test_what_was_written_comes_back(path: Path) -> None:
    run = read_component_run(path)
    assert (run.header, run.cases, run.is_complete, run.damage) == (HEADER, (CASE,), True, ())
    assert is_component_file(path)


def test_a_torn_line_costs_one_case(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]) + b'{"kind":"component_case","sche')
    run = read_component_run(path)
    assert run.cases == (CASE,)
    assert not run.is_complete
    assert len(run.damage) == 1 and "torn" in run.damage[0]


def test_a_case_without_repeats_is_left_out_and_named(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b'{"kind":"component_case","schema_version":3,"name":"empty","repeats":[]}\n')
    run = read_component_run(path)
    assert run.cases == (CASE,)
    assert run.damage == ("the case 'empty' has no repeats",)


def test_a_sweep_is_not_read_as_a_component_nor_the_other_way_round(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="holds a component's results"):
        read_run(path)
    sweep = tmp_path / "sweep.jsonl"
    sweep.write_bytes(b'{"kind":"header","schema_version":2}\n')
    assert not is_component_file(sweep)
    with pytest.raises(ResultsError, match="not a component's results file"):
        read_component_run(sweep)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty"),
        (b"\x89PNG\r\n\x1a\n", "not a component's results file"),
        (b'{"kind":"component_header","schema_version":99}\n', "newer Deepdraft"),
    ],
)
def test_foreign_files_get_one_clear_line(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_bytes(content)
    with pytest.raises(ResultsError) as caught:
        read_component_run(path)
    assert words in caught.value.message
    assert "\n" not in caught.value.message


def test_a_file_that_is_not_there_is_no_component_file(tmp_path: Path) -> None:
    assert not is_component_file(tmp_path / "none.jsonl")
    assert not is_component_file(tmp_path)
