"""Every rule fires on a run made to have its fault, and is silent on clean ones."""

import re

import pytest
from diagnosis_runs import DEVICE, cases, clean, drafted, kimi
from faulty_runs import FAULTY

from deepdraft.diagnosis.facts import Facts
from deepdraft.diagnosis.reference import QUESTIONS, answers, findings_page
from deepdraft.diagnosis.rules import RULES, Rule

SEVERITIES = {
    "D101": "error", "D102": "error", "D103": "info", "D104": "info", "D109": "info",
    "D201": "error", "D202": "error", "D203": "error", "D204": "info", "D205": "error", "D206": "error",
    "D207": "error", "D216": "info",
    "D306": "unknown", "D309": "unknown",
}  # fmt: skip
KNOWN = Facts(model=kimi(), device=DEVICE, tp_size=8, reserve_bytes=20e9)
CLEAN = {
    "plain": lambda: cases(clean(), facts=Facts()),
    "with facts": lambda: cases(
        clean(kv_pool_tokens=400_000, max_context_len=200_000, settings={"chunked_prefill_size": 8192}), facts=KNOWN
    ),
    "with a drafter": lambda: cases(drafted(), clean(), facts=Facts()),
    "drafter and facts": lambda: cases(drafted(), clean(), facts=KNOWN),
}
ALWAYS_SAID = {"D108": "covers all that was measured"}
"""Rules that speak on a clean run as well, and what they say of it."""


def ids(rule: Rule) -> str:
    return rule.code


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_it_fires_on_its_fault(rule):
    runs, facts = FAULTY[rule.code]()
    findings = rule.find(cases(*runs, facts=facts)[0])
    assert findings, "silent on its own fault"
    finding = findings[0]
    assert (finding.code, finding.name) == (rule.code, rule.name)
    assert finding.severity == SEVERITIES.get(rule.code, "warning")
    assert finding.evidence, "a finding without evidence"
    assert len(finding.summary) > 40
    for hypothesis in finding.hypotheses:
        assert hypothesis.why and hypothesis.prediction and hypothesis.experiment


@pytest.mark.parametrize("kind", CLEAN)
@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_it_is_silent_on_a_clean_run(rule, kind):
    findings = rule.find(CLEAN[kind]()[0])
    if rule.code in ALWAYS_SAID:
        (finding,) = findings
        assert finding.severity == "info" and ALWAYS_SAID[rule.code] in finding.summary
        return
    assert findings == ()


@pytest.mark.parametrize("rule", RULES, ids=ids)
def test_its_docstring_answers_the_five_questions(rule):
    said = answers(rule.doc)
    assert set(said) == {"", *QUESTIONS}
    assert all(len(text) > 10 for text in said.values())


def test_codes_and_names_are_unique_and_in_order():
    codes = [rule.code for rule in RULES]
    assert codes == sorted(set(codes))
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(re.fullmatch(r"D[1-4]\d\d", code) for code in codes)
    assert set(FAULTY) == set(codes)


def test_the_reference_page_holds_every_rule():
    page = findings_page()
    for rule in RULES:
        assert f"### {rule.code} `{rule.name}`" in page
    assert page.count("- **When it is wrong**") == len(RULES)
