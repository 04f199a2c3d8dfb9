"""The cases' figures are those of the reports (shared by the tests of other rooms, so checked here once)."""

from __future__ import annotations

import pytest

from deepdraft.metrics import points_of
from deepdraft.records import Run
from findings_cases import CASES, f02, f03, f04, f05, f06, f07, f08, f09


def _runs(name: str) -> list[Run]:
    made = CASES[name]()
    return [made] if isinstance(made, Run) else list(made.values())


def _median(run: Run, place: int, figure: str) -> float:
    brief = points_of(run)[place].summary(figure)
    assert brief is not None
    return brief.median


@pytest.mark.parametrize("name", CASES)
def test_every_case_has_points_with_a_length(name: str) -> None:
    for run in _runs(name):
        points = points_of(run)
        assert points
        assert all(point.context_len > 0 for point in points)
        assert run.is_complete or run.trials


def test_the_drafter_of_f02_wins_short_and_loses_at_185k() -> None:
    runs = f02()
    assert _median(runs["off"], 0, "decode_tok_s") == 71
    assert [_median(runs["drafts_4"], place, "decode_tok_s") for place in (0, 1)] == [190, 16.0]
    assert runs["off"].reported[0].figures["decode_tok_s"].half_width is None  # "~71"
    assert runs["drafts_4"].reported[1].figures["decode_tok_s"].half_width == pytest.approx(0.05)


def test_cold_and_cached_points_of_f03_stay_apart() -> None:
    points = points_of(f03())
    assert [point.reported.is_cold for point in points if point.reported is not None] == [None, True, False]


def test_f04_has_a_point_without_an_acceptance_figure() -> None:
    by_len = {point.context_len: point for point in points_of(f04()["spec"])}
    assert "acceptance_len" not in by_len[14336].figures
    assert by_len[13312].figures["acceptance_len"].summary.median == 4.0


def test_f05_computes_with_the_actual_length() -> None:
    point = points_of(f05())[-1]
    assert (point.asked_context_len, point.context_len) == (128_000, 82_845)
    assert point.figures["ttft_s"].summary.median == pytest.approx(82_845 / 5604)


def test_f06_counts_the_same_steps() -> None:
    runs = f06()
    steps = {run.reported[0].acceptance.num_steps for run in runs.values() if run.reported[0].acceptance is not None}
    assert steps == {34}
    assert _median(runs["graph_tree"], 0, "decode_tok_s") / _median(runs["graph_chain"], 0, "decode_tok_s") == (
        pytest.approx(0.684, abs=5e-4)
    )


def test_f07_keeps_the_buckets() -> None:
    line = f07()["drafts"].reported[-1]
    assert line.figures["verify_s"].values == (4.389,)
    assert line.figures["rebuild_s"].values == (1.368,)


def test_f08_has_no_acceptance_figure() -> None:
    for run in f08().values():
        (point,) = points_of(run)
        assert "acceptance_len" not in point.figures
        assert point.num_samples == 3


def test_f09_is_faster_at_64k_than_at_16k() -> None:
    assert _median(f09(), 2, "ttft_s") < _median(f09(), 0, "ttft_s")
