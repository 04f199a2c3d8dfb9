"""A component's results as text, JSON and CSV: within 80 columns, every figure with its range, nothing made up."""

from __future__ import annotations

import csv
import io
import json

import pytest
from component_cases import case, run
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.records.component import ComponentRun
from deepdraft.records.line import End
from deepdraft.report.component_json import component_csv, component_object
from deepdraft.report.component_table import component_table, seconds_range
from deepdraft.stats import summary

WIDE = case(
    (1.23e-3, 1.31e-3, 1.19e-3),
    name="512+64 128k, 16 rows, page 64, native",
    peer_factors={"torch": 4.2, "sdpa": 12.5, "one run": 0.98},
    parts_s={"draft": 1e-3, "build": 1e-4, "verify": 1e-3, "compact": 0.0, "other": 3e-4},
    counts={"rounds": 2.0, "tokens": 5.0, "rows": 34.0},
)


def text_of(found: ComponentRun) -> str:
    return component_table(found)


def test_a_case_has_time_share_and_peers() -> None:
    text = text_of(run(case((2.0, 4.0, 2.0), name="a case", peer_factors={"torch": 3.0})))
    assert "a case                                2.00 s (2.00-4.00)        0.750 matmul" in text
    assert "    torch 3.00 (3.00-3.00)" in text


def test_everything_fits_80_columns() -> None:
    environment = {"num_cores": 64, "num_threads": 32, "device": "a GPU", "native": "avx512", "torch": "2.13.0+cpu"}
    text = text_of(run(WIDE, environment=environment))
    assert max(map(len, text.splitlines())) <= 80
    assert "2.50 tokens and 17.0 rows a round" in " ".join(text.split())


def test_without_a_ceiling_or_a_peer_there_is_a_dash() -> None:
    lines = text_of(run(case((1.0,), name="bare", work={}))).splitlines()
    row = next(line for line in lines if line.startswith("bare"))
    assert row.split() == ["bare", "1.00", "s", "-"]


def test_a_run_that_was_cut_short_says_so() -> None:
    cut = ComponentRun(header=run().header, cases=(case(),))
    assert "not complete: the run was cut short" in text_of(cut)
    stopped = ComponentRun(header=run().header, ends=(End(at_s=1.0, outcome="interrupted", message="Ctrl-C"),))
    assert "nothing was measured" in text_of(stopped)
    assert "not complete: Ctrl-C" in text_of(stopped)


def test_a_note_is_printed_once() -> None:
    cases = [case(name=name) for name in ("one", "two")]
    noted = [type(each)(name=each.name, repeats=each.repeats, note="scaled down") for each in cases]
    assert text_of(run(*noted)).count("note: scaled down") == 1


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ((2.5,), "2.50 s"),
        ((0.0125, 0.012, 0.013), "12.5 ms (12.0-13.0)"),
        ((1e-3,), "1.00 ms"),
        ((12.345e-6, 1e-3, 1e-6), "12.3 us (1.00-1000)"),
        ((2e-9,), "0.00200 us"),
    ],
)
def test_times_are_in_the_unit_of_the_median(seconds: tuple[float, ...], text: str) -> None:
    found = summary(seconds)
    assert found is not None
    assert seconds_range(found) == text


@given(st.lists(st.floats(1e-9, 1e4), min_size=1, max_size=4), st.floats(1e-3, 1e3))
def test_any_figures_fit(seconds: list[float], factor: float) -> None:
    text = text_of(run(case(seconds, name=WIDE.name, peer_factors={"torch": factor})))
    assert max(map(len, text.splitlines())) <= 84  # a time of 9 digits is wider than the column


def test_json_has_the_figures_and_survives_encoding() -> None:
    found = json.loads(json.dumps(component_object(run(WIDE, settings={"rows": [16]}))))
    assert (found["component"], found["is_complete"], found["settings"]) == ("kernels", True, {"rows": [16]})
    (only,) = found["cases"]
    assert only["name"] == WIDE.name
    assert only["seconds"]["median"] == 1.23e-3
    assert only["peer_ratios"]["torch"]["median"] == pytest.approx(4.2)
    assert only["tokens_per_round"] == 2.5
    assert only["parts_s"]["compact"]["median"] == 0.0


def test_json_says_none_for_what_is_not_known() -> None:
    (only,) = component_object(run(case(work={})))["cases"]
    assert (only["ceiling"], only["share_frac"], only["tokens_per_round"], only["peer_ratios"]) == (
        None,
        None,
        None,
        {},
    )


def test_csv_has_a_column_for_every_peer() -> None:
    cases = [case((1.0,), name="one", peer_factors={"torch": 3.0}), case((1.0,), name="two", work={})]
    rows = list(csv.DictReader(io.StringIO(component_csv(run(*cases)))))
    assert [row["torch ratio"] for row in rows] == ["3.0", ""]
    assert [row["ceiling"] for row in rows] == ["matmul", ""]
    assert [row["case"] for row in rows] == ["one", "two"]
