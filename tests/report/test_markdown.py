import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_builder import HOSTILE, all_views, hostile, two

from deepdraft.report.grid import grid_of
from deepdraft.report.markdown import markdown_text, plain
from deepdraft.report.view import Views


def tables(text):
    """Each table's rows of cells."""
    found = []
    for block in text.split("\n\n"):
        lines = block.splitlines()
        if len(lines) > 1 and re.fullmatch(r"\|(:--|--:)(\|(:--|--:))*\|", lines[1]):
            found.append([re.split(r" (?<!\\)\| ", line[2:-2]) for line in (lines[0], *lines[2:])])
    return found


def test_the_tables_are_whole():
    found = tables(markdown_text(two(), all_views()))
    assert len(found) == 2 + 6 + 1  # sweeps, charts, the comparison
    for table in found:
        assert len({len(row) for row in table}) == 1


def test_the_sweep_has_every_figure():
    subjects = two()
    text = markdown_text(subjects, Views())
    for subject, table in zip(subjects, tables(text)[:2], strict=True):
        grid = grid_of(subject.rows)
        assert [[cell.replace("\\", "") for cell in row] for row in table[1:]] == [
            [cell.text + cell.mark for cell in row] for row in grid.cells
        ]


@given(st.text())
def test_no_text_becomes_markup(text):
    shown = plain(text)
    assert "\n" not in shown and "<" not in shown and ">" not in shown
    assert not re.search(r"(?<!\\)(?:\\\\)*[`*_\[\]|]", shown)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_breaks_no_table(text):
    subject = hostile(text)
    said = markdown_text([subject, subject], all_views(text))
    assert "<" not in said
    assert not re.search(r"(?<!\\)!?\[[^\]]*\]\(", said)
    for table in tables(said):
        assert len({len(row) for row in table}) == 1
