import dataclasses

from report_builder import sweep
from trace_builder import repeats, steady

from deepdraft.report import results_table
from deepdraft.report.grid import grid_of
from deepdraft.report.row import rows_of


def test_cells_print_what_the_text_table_prints():
    run = sweep(is_drafting=True)
    grid = grid_of(rows_of(run))
    table = results_table(run)
    lines = [line.replace("!", " ").replace("?", " ").split() for line in table.splitlines()]
    for row in grid.cells:
        printed = next(line for line in lines if line and line[0] == row[0].text)
        assert [word for cell in row for word in cell.text.split()] == printed


def test_values_are_those_of_the_points():
    rows = rows_of(sweep())
    grid = grid_of(rows)
    names = [head.figure for head in grid.heads]
    for row, cells in zip(rows, grid.cells, strict=True):
        for name, cell in zip(names, cells, strict=True):
            if name in row.point.figures:
                assert cell.value == row.point.figures[name].summary.median


def test_a_column_in_which_nothing_is_known_is_left_out():
    heads = [head.text for head in grid_of(rows_of(sweep())).heads]
    assert "acceptance" not in heads and "streams" not in heads
    assert "acceptance" in [head.text for head in grid_of(rows_of(sweep(is_drafting=True))).heads]


def test_marks_name_their_guards():
    run = repeats(*[steady(64, cached=None)] * 3)
    grid = grid_of(rows_of(run))
    (row,) = grid.cells
    ttft = row[[head.figure for head in grid.heads].index("ttft_s")]
    assert ttft.mark == "?" and "cold_prefix" in ttft.doubted_by


def test_several_streams_have_a_column():
    run = repeats(steady(64))
    trials = tuple(dataclasses.replace(one, concurrency=4) for one in run.trials)
    assert grid_of(rows_of(dataclasses.replace(run, trials=trials))).heads[1].text == "streams"
