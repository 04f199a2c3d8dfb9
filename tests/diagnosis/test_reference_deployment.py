"""What must be concluded from the reference deployment's own table, and what must not."""

import re
from pathlib import Path

import pytest
from diagnosis_runs import cases

from deepdraft.cost.expected import ExpectedTimes
from deepdraft.diagnosis.explain import explanation, findings_of
from deepdraft.diagnosis.facts import Facts
from deepdraft.diagnosis.text import explanations_text
from deepdraft.records.file import read_run
from findings_cases import f01

SWEEP = Path(__file__).resolve().parents[2] / "examples" / "reference_deployment" / "sweep.jsonl"
EXPECTED = (
    ExpectedTimes(context_len=1_400, ttft_s=0.326, tpot_s=0.00994, source="aiconfigurator"),
    ExpectedTimes(context_len=32_000, ttft_s=16.31, tpot_s=0.01376, source="aiconfigurator"),
    ExpectedTimes(context_len=128_000, ttft_s=192.9, tpot_s=0.0234, source="aiconfigurator"),
)


@pytest.fixture(scope="module")
def case():
    return cases(("sweep.jsonl", f01()))[0]


@pytest.fixture(scope="module")
def findings(case):
    return {finding.code: finding for finding in findings_of(case)}


def test_impossible_and_contradictory_results_come_first(case):
    severities = [finding.severity for finding in findings_of(case)]
    assert severities == sorted(severities, key=("error", "warning", "info", "unknown").index)
    assert severities[0] == "error"


def test_ms_per_step_is_ms_per_token(findings):
    assert "ms/step is ms per token" in findings["D202"].summary
    assert "all 6 points" in findings["D202"].summary


def test_depth_three_and_commit_one_contradict(findings):
    summary = findings["D201"].summary
    assert findings["D201"].severity == "error"
    assert "avg_commit_len" in summary and "avg_accepted_depth" in summary


def test_a_step_commits_at_least_2_9_tokens(findings):
    assert "at least 2.9 tokens a step" in findings["D204"].summary
    assert "unless the texts differ" in findings["D204"].summary
    assert findings["D204"].severity == "error"


def test_decode_grows_by_the_slopes_before_the_knee(findings):
    summary = findings["D104"].summary
    assert "4.4 - 6.2 ms per 1k tokens up to 128k" in summary
    assert "7.7 ms is only the chord" in summary
    slopes = [evidence.value for evidence in findings["D104"].evidence if evidence.name == "slope"]
    assert [float(text.split()[0]) for text in slopes] == [4.36, 5.17, 6.2, 5.58, 12.5]


def test_a_knee_before_185k_that_rounding_cannot_explain(findings):
    summary = findings["D107"].summary
    assert "between 128k and 185k" in summary
    assert "rounding can't explain it" in summary
    assert "cause is not established" in summary
    (pool,) = findings["D107"].hypotheses
    assert pool.name == "retraction_near_pool" and pool.support == "some"


def test_effective_bandwidth_is_two_orders_below_and_the_size_of_a_serial_walk(findings):
    finding = findings["D105"]
    (rate,) = [evidence.value for evidence in finding.evidence if evidence.name == "effective bandwidth"]
    assert 9e9 < rate < 16e9
    assert re.search(r"1[0-9]0x below", finding.summary)
    by_name = {hypothesis.name: hypothesis for hypothesis in finding.hypotheses}
    assert finding.hypotheses[0].name == "serial_kv_walk"
    assert by_name["page_scatter"].support == "against" and "can't explain" in by_name["page_scatter"].why
    assert by_name["no_cuda_graph"].support == "against"


def test_prefill_is_quadratic_and_about_as_expected_for_its_kernel(findings):
    assert "quadratic term is 86 %" in findings["D103"].summary
    assert "about as expected for such a kernel" in findings["D106"].summary


def test_the_practical_zone_states_its_limits(case, findings):
    assert "ends near 20k" in findings["D108"].summary and "defaults" in findings["D108"].summary
    strict = Facts(ttft_limit_s=5.0, tpot_limit_s=0.05, are_limits_given=True)
    said = {finding.code: finding for finding in findings_of(cases(case.run, facts=strict)[0])}["D108"]
    assert "ends near 11k" in said.summary and "defaults" not in said.summary


def test_measured_over_expected_is_the_diagnosis_in_one_line(case):
    said = {finding.code: finding for finding in findings_of(cases(case.run, facts=Facts(expected=EXPECTED))[0])}
    assert "1.08 at 32k, 0.964 at 128k" in said["D110"].summary
    assert "11.5 at 32k, 30.5 at 128k" in said["D110"].summary
    assert "more than one token a step" in said["D205"].summary


def test_what_the_data_cannot_carry_is_not_concluded(findings):
    assert "D208" not in findings, "the drafter gives no help: not from contradictory figures"
    assert "D209" not in findings, "one acceptance figure is no trend"
    assert "D210" not in findings and "D211" in findings
    assert findings["D211"].severity == "unknown", "whether speculation pays can't be told without a run without it"
    for finding in findings.values():
        for hypothesis in finding.hypotheses:
            assert hypothesis.support != "strong", "tokens a step are not known: no cause is strongly supported"


def test_attribution_sums_to_what_was_measured(case):
    rows = explanation(case).attributions
    assert [row.context_len for row in rows] == [1_400, 11_000, 32_000, 64_000, 128_000, 185_000]
    for row in rows:
        assert row.per == "token"
        assert sum(part.seconds for part in row.parts) + row.residual_s == pytest.approx(row.measured_s)
        assert row.residual_s > 0
    assert rows[-1].residual_s > 0.9 * rows[-1].measured_s


def test_the_shipped_file_says_the_same_in_eighty_columns(case, findings):
    text = explanations_text([explanation(cases(("sweep.jsonl", read_run(SWEEP)))[0])])
    assert max(len(line) for line in text.splitlines()) <= 80
    assert re.findall(r"^(D\d\d\d) ", text, re.M) == [finding.code for finding in findings_of(case)]
    steps = text[text.index("Next steps") :]
    assert "1. Start without --speculative-algorithm" in steps
    assert "\x1b" not in text
