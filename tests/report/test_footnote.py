import dataclasses

from report_builder import reference, sweep

from deepdraft.records import Refusal
from deepdraft.report.footnote import footnotes_of, missing_of, remarks_of
from deepdraft.report.row import rows_of


def test_one_doubt_of_several_points_is_said_once():
    subject = reference()
    lines = remarks_of(subject.run, subject.rows)
    assert (
        lines.count(
            "In doubt (1.4k, 11k, 32k, 64k, 128k, 185k): reported as ms/step; how it was computed is not said"
        )
        == 1
    )
    assert len([line for line in lines if "how it was computed" in line]) == 1


def test_a_refused_point_is_named_with_its_reason():
    run = dataclasses.replace(sweep(), refusals=(Refusal(context_len=400_000, concurrency=2, reason="too long"),))
    assert missing_of(run, rows_of(run)) == ["Not sent (400k x 2): too long"]


def test_what_was_verified_everywhere_is_one_line():
    lines = footnotes_of(rows_of(sweep()))
    assert any(line.startswith("Verified at every point: cold_prefix, prompt_len") for line in lines)


def test_a_file_without_an_end_says_so():
    run = dataclasses.replace(sweep(), ends=())
    assert remarks_of(run, rows_of(run)) == ["Not complete: the file has no end line"]
