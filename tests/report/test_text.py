import pytest
from report_builder import HOSTILE, all_views, hostile, reference, sweep, two

from deepdraft.report import results_table
from deepdraft.report.subject import Subject
from deepdraft.report.text import report_text
from deepdraft.report.view import Views


def test_a_run_alone_is_its_table():
    run = sweep()
    assert report_text([Subject(name="plain", run=run)], Views()) == results_table(run)


def test_everything_handed_in_is_said_in_80_columns():
    text = report_text(two(), all_views())
    assert max(map(len, text.splitlines())) <= 80
    joined = " ".join(text.split())
    for said in (
        "- plain: time a token = 10 ms + 0.2 ms a 1k tokens words",
        "D104 decode grows words (warning, plain)",
        "- What to do: words",
        "16k time a token 1.00 0.9 to 1.10 better words",
        "- crossover, time a token: 16k words",
        "- 1.0k: 10.2 ms = weights 4.00 + KV read words 0.1 + not explained 6.10",
    ):
        assert said in joined


def test_no_findings_is_said_only_where_a_diagnosis_was_made():
    subjects = [reference()]
    assert "No rule found anything" in report_text(subjects, Views(is_explained=True))
    assert "No rule found anything" not in report_text(subjects, Views())


@pytest.mark.parametrize("text", HOSTILE)
def test_no_control_character_reaches_a_terminal(text):
    said = report_text([hostile(text), hostile(text)], all_views(text))
    assert not set(said) & {"\x1b", "\x00", "\u202e"}
