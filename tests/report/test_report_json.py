import json

from report_builder import all_views, two

from deepdraft.report import results_object
from deepdraft.report.report_json import report_object
from deepdraft.report.view import Views


def test_runs_are_as_show_gives_them_with_what_was_handed_in():
    subjects = two()
    found = json.loads(json.dumps(report_object(subjects, all_views()), allow_nan=False))
    assert [run["name"] for run in found["runs"]] == ["plain", "drafter"]
    for run, subject in zip(found["runs"], subjects, strict=True):
        expected = json.loads(json.dumps(results_object(subject.run)))
        assert {name: value for name, value in run.items() if name != "name"} == expected
    assert found["findings"][0]["code"] == "D104"
    assert found["laws"][0]["figure"] == "tpot_s"
    assert found["comparisons"][0]["crossovers"][0]["context_len"] == 16_000
    assert found["attributions"][0]["bars"][0]["residual_s"] == 0.0061


def test_nothing_handed_in_is_empty_and_not_missing():
    found = json.loads(json.dumps(report_object(two()[:1], Views())))
    assert found["findings"] == [] and found["comparisons"] == [] and found["is_explained"] is False
