"""The reference deployment's example: its figures are those of the report, and its file is what its script makes."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from deepdraft.metrics import points_of
from deepdraft.records.file import read_run
from deepdraft.report import results_table

FOLDER = Path(__file__).parents[2] / "examples" / "reference_deployment"
SWEEP = FOLDER / "sweep.jsonl"
# actual context, TTFT in s and its rounding, prefill tok/s, decode tok/s, "ms/step": typed in again from the report.
REPORTED = [
    (1_400, 0.46, 0.005, 3104, 118.6, 8.4),
    (11_000, 4.3, 0.05, 2659, 19.9, 50),
    (32_000, 17.6, 0.05, 1820, 6.3, 159),
    (64_000, 51, 0.5, 1255, 2.8, 357),
    (128_000, 186, 3, 696, 1.4, 714),
    (185_000, 384, 3, 479, 0.7, 1430),
]


def test_the_figures_are_those_of_the_report() -> None:
    table = [point for point in points_of(read_run(SWEEP)) if point.context_len != 5_500]
    assert len(table) == len(REPORTED)
    for point, (context_len, ttft, half_width, prefill, decode, ms_step) in zip(table, REPORTED, strict=True):
        assert point.context_len == context_len
        assert point.figures["ttft_s"].summary.median == pytest.approx(ttft)
        assert point.figures["ttft_s"].half_width == pytest.approx(half_width)
        assert point.figures["prefill_tok_s"].summary.median == prefill
        assert point.figures["decode_tok_s"].summary.median == decode
        assert point.figures["decode_tok_s"].half_width == pytest.approx(0.05)
        assert point.figures["step_s"].summary.median == pytest.approx(ms_step / 1e3)
        assert point.figures["step_s"].doubts
        assert "tokens_per_step" not in point.figures


def test_the_logs_note_is_a_point_of_its_own() -> None:
    (note,) = [line for line in read_run(SWEEP).reported if line.context_len == 5_500]
    assert note.figures["step_s"].values == (0.144,)
    assert note.figures["step_s"].half_width is None  # "about"
    assert note.figures["acceptance_len"].values == (1.0,)
    assert note.figures["accepted_len"].values == (3.0,)
    assert all(note.figures[name].doubt for name in ("acceptance_len", "accepted_len"))


def test_what_was_known_of_the_server_and_what_was_not() -> None:
    run = read_run(SWEEP)
    server = run.header.capabilities
    assert (server.engine, server.version, server.speculation) == ("sglang", None, "yes")
    assert (server.page_size, server.max_context_len, server.num_slots) == (1, 200_000, 8)
    assert run.header.spec.text == "synthetic, repetitive"
    assert {note.topic for note in run.notes} >= {"method", "memory"}
    assert any("101,134" in note.message for note in run.notes)
    assert all(line.is_cold is None for line in run.reported)  # no cached-token count was kept
    assert run.header.source is not None
    assert len(run.header.source.unknowns) >= 5


def test_show_prints_the_table() -> None:
    shown = results_table(read_run(SWEEP))
    rows = [line.split() for line in shown.splitlines()]
    assert ["1.4k", "460", "ms?", "3104?", "118.6", "8.43", "-", "8.40?", "-", "-", "1"] in rows
    assert any(row[:1] == ["185k"] and "6.4" in row and "479.0?" in row for row in rows)
    assert "a published table" in shown


def test_the_file_is_what_the_script_makes(tmp_path: Path) -> None:
    specification = importlib.util.spec_from_file_location("make", FOLDER / "make.py")
    assert specification is not None
    assert specification.loader is not None
    make = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(make)
    make.main(tmp_path / "sweep.jsonl")
    assert (tmp_path / "sweep.jsonl").read_bytes() == SWEEP.read_bytes()
