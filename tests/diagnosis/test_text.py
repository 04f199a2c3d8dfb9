"""Findings as text and as JSON."""

import json
import re
from dataclasses import replace

import pytest
from diagnosis_runs import cases, clean, header
from faulty_runs import FAULTY

from deepdraft.diagnosis.explain import Explanation, explanation
from deepdraft.diagnosis.finding import Evidence, Finding, Hypothesis, by_support, in_order
from deepdraft.diagnosis.json_object import explanations_object
from deepdraft.diagnosis.text import explanations_text
from deepdraft.records import Run


@pytest.mark.parametrize("code", FAULTY)
def test_eighty_columns_without_colour_for_every_finding(code):
    runs, facts = FAULTY[code]()
    text = explanations_text([explanation(case) for case in cases(*runs, facts=facts)])
    assert max(len(line) for line in text.splitlines()) <= 80
    assert re.search(rf"^{code} \w+$", text, re.M)
    assert "\x1b" not in text and "None" not in text and " nan" not in text


@pytest.mark.parametrize("code", FAULTY)
def test_json_carries_every_finding_whole(code):
    runs, facts = FAULTY[code]()
    explanations = [explanation(case) for case in cases(*runs, facts=facts)]
    made = json.loads(json.dumps(explanations_object(explanations), allow_nan=False))
    keys = {"run", "code", "name", "severity", "summary", "evidence", "remedy", "hypotheses", "worth"}
    assert made["findings"] and all(set(finding) == keys for finding in made["findings"])
    assert code in [finding["code"] for finding in made["findings"] if finding["run"] == "run 0"]
    assert [run["name"] for run in made["runs"]] == [each.name for each in explanations]


def test_a_run_without_points_says_so():
    text = explanations_text([explanation(cases(Run(header=header()))[0])])
    assert "there are no points to explain" in text


def test_a_clean_run_says_that_nothing_stands_out():
    made = replace(explanation(cases(clean())[0]), findings=())
    assert "nothing stands out" in explanations_text([made])


def test_runs_are_named_where_there_are_several():
    both = [explanation(case) for case in cases(("a.jsonl", clean()), ("b.jsonl", clean()))]
    assert re.findall(r"^=== (\S+)", explanations_text(both), re.M) == ["a.jsonl", "b.jsonl"]
    assert "===" not in explanations_text(both[:1])


def finding(code, severity, worth=1.0, **fields):
    return Finding(code=code, name="n", severity=severity, summary="what was seen", worth=worth, **fields)


def test_order_is_by_severity_then_worth_then_code():
    given = [
        finding("D401", "info", 9.0),
        finding("D105", "warning", 2.0),
        finding("D107", "unknown"),
        finding("D211", "warning", 5.0),
        finding("D201", "error"),
        finding("D104", "warning", 2.0),
    ]
    assert [each.code for each in in_order(given)] == ["D201", "D211", "D104", "D105", "D401", "D107"]


def hypothesis(name, support):
    return Hypothesis(name=name, support=support, why="w", prediction="p", experiment=f"experiment of {name}")


def test_hypotheses_are_ordered_by_support_and_the_refuted_keep_no_experiment_in_the_text():
    ordered = by_support([hypothesis("c", "against"), hypothesis("b", "weak"), hypothesis("a", "strong")])
    assert [each.name for each in ordered] == ["a", "b", "c"]
    one = finding("D105", "warning", 9.0, remedy="do this", hypotheses=ordered)
    text = explanations_text([Explanation(name="r", num_points=1, findings=(one,), attributions=())])
    assert "experiment of b" in text and "experiment of c" not in text


def test_next_steps_are_in_order_of_worth_each_once_and_five_at_most():
    findings = [finding(f"D1{place:02}", "warning", float(place), remedy=f"step {place}") for place in range(1, 9)]
    findings.append(finding("D201", "error", 1.0, remedy="step 8"))
    text = explanations_text([Explanation(name="r", num_points=1, findings=tuple(findings), attributions=())])
    steps = text[text.index("Next steps") :]
    assert re.findall(r"^  (\d)\. step (\d)$", steps, re.M) == [
        ("1", "8"), ("2", "7"), ("3", "6"), ("4", "5"), ("5", "4"),
    ]  # fmt: skip


def test_evidence_is_printed_with_readable_units():
    evidence = (
        Evidence(name="rate", value=13.6e9, unit="B/s", source="fit"),
        Evidence(name="peak", value=58e12, unit="FLOP/s"),
        Evidence(name="time", value=0.00944, unit="s"),
        Evidence(name="pool", value=101_134.0, unit="tokens"),
        Evidence(name="note", value="off"),
    )
    one = finding("D105", "info", evidence=evidence)
    text = explanations_text([Explanation(name="r", num_points=1, findings=(one,), attributions=())])
    for line in ("rate: 14 GB/s (fit)", "peak: 58 TFLOP/s", "time: 9.44 ms", "pool: 101,134 tokens", "note: off"):
        assert f"- {line}" in text
