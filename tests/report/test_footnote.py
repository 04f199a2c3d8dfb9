import dataclasses

from report_builder import reference, sweep
from trace_builder import repeats, steady

from deepdraft.records import Acceptance, Refusal, StepParts
from deepdraft.report.footnote import footnotes_of, missing_of, remarks_of, step_parts_of
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


def test_the_parts_of_a_step_are_told_where_the_server_tells_them():
    told = Acceptance(
        source="usage.speculation of the answer",
        num_steps=4,
        num_draft_tokens=32,
        num_accepted_tokens=6,
        accepted_len_histogram=(1, 1, 1, 1),
        parts=StepParts(draft_s=0.004, build_s=0.0004, verify_s=0.04, compact_s=0.0, other_s=0.002),
    )
    run = repeats(steady(11), steady(11), speculation="yes")
    run = dataclasses.replace(
        run, measurements=tuple(dataclasses.replace(each, acceptance=told) for each in run.measurements)
    )
    (line,) = step_parts_of(rows_of(run))
    assert line == (
        "A step by the server's clock (1.0k): 11.6 ms = draft 1.00 + build 0.1 + verify 10.0 + compact 0 + "
        "other 0.5; 8.00 nodes drafted; accepted at depth 1, 2, ...: 0.75 0.50 0.25"
    )
    assert step_parts_of(rows_of(sweep())) == []
