"""The findings cases F02 to F10: tables of public reports, and what may and may not be concluded from them."""

from dataclasses import replace

import pytest
from diagnosis_runs import DEVICE, cases, found, kimi

from deepdraft.cost.floor import prefill_floor_s
from deepdraft.diagnosis.attribution import attributions
from deepdraft.diagnosis.facts import Facts
from findings_cases import f02, f03, f04, f05, f06, f07, f08, f09, f10


def test_f02_speculation_loses_at_185k_and_the_crossover_is_not_located():
    runs = f02()
    findings = found(("drafts_4", runs["drafts_4"]), ("off", runs["off"]))
    loss = findings["D211"]
    assert "loses at 185k tokens: 16 tok/s with the drafter, 71 without, 4.4x slower" in loss.summary
    assert "likely a gain" in loss.summary
    assert "not located: measure 2.1k, 4.4k, 9.4k, 20k, 42k, 88k with and without" in loss.summary
    assert "tokens a step are not known" in loss.summary
    assert loss.hypotheses[0].name == "drafter_rescan" and loss.hypotheses[0].support == "weak"
    assert "D210" not in findings, "drafter cost is a hypothesis here, not a finding"
    assert "D107" not in findings and "D209" not in findings
    two = found(("drafts_2", runs["drafts_2"]), ("off", runs["off"]))["D211"]
    assert "5.9x slower" in two.summary and "crossover" not in two.summary
    eight = found(("drafts_8", runs["drafts_8"]), ("off", runs["off"]))["D211"]
    assert eight.severity == "unknown" and "no length in common" in eight.summary


def test_f03_acceptance_and_step_time_are_told_apart_and_hits_kept_out():
    findings = found(f03())
    fall = findings["D209"]
    assert "commits 6 tokens at 1.0k tokens and 2.65 at 172k tokens: 2.3x fewer" in fall.summary
    assert "2.3x by fewer tokens a step, the other 1.8x by slower steps" in fall.summary
    assert "can't be told from two points" in fall.summary
    assert any("prefix cache" in str(evidence.value) for evidence in fall.evidence)
    assert "172k" in findings["D301"].summary
    curve = cases(f03())[0].curve("decode_tok_s")
    assert [curve.value(point) for point in curve.points] == [22.5, 5.5], "the cached pass is on no curve"


def test_f04_workloads_that_differ_are_no_cliff_in_context():
    runs = f04()
    findings = found(("spec", runs["spec"]), ("off", runs["off"]))
    assert "different workloads" in findings["D308"].summary
    assert "D107" not in findings and "D209" not in findings
    assert "D107" not in findings["D104"].summary and "chord" not in findings["D104"].summary
    assert "D107" not in found(runs["off"]), "without drafts the same lengths lie on one curve"


def test_f05_the_actual_length_is_used_everywhere():
    findings = found(f05())
    assert "labelled 128,000 tokens has 82,845" in findings["D302"].summary
    assert any("64k - 83k" in evidence.source for evidence in findings["D104"].evidence)
    assert "128k" not in findings["D104"].summary


def test_f06_the_tree_gains_nothing_with_graphs_and_eager_figures_do_not_decide():
    runs = f06()
    tree = found(*[(name, runs[name]) for name in ("graph_tree", "graph_chain", "eager_tree", "eager_chain")])
    assert "graph_tree needs as many steps as graph_chain" in tree["D215"].summary
    assert "31.6 % slower" in tree["D215"].summary
    eager = found(*[(name, runs[name]) for name in ("eager_tree", "eager_chain", "graph_chain", "graph_tree")])
    assert eager["D309"].severity == "unknown" and "D215" not in eager


def test_f07_speculation_loses_twofold_and_buckets_attribute_the_time():
    runs = f07()
    both = cases(("drafts", runs["drafts"]), ("off", runs["off"]))
    loss = found(("drafts", runs["drafts"]), ("off", runs["off"]))["D211"]
    assert "loses at 48k tokens: 18.8 tok/s with the drafter, 38 without, 2x slower" in loss.summary
    last = attributions(both[0])[-1]
    assert {part.name: part.seconds for part in last.parts} == pytest.approx({"verify": 4.389, "rebuild": 1.368})
    assert last.measured_s is None and last.residual_s is None, "the answer's tokens are not told, so no whole"


@pytest.mark.parametrize("kind", ["read_once", "not_moved"])
def test_f08_acceptance_is_unknown_and_neither_zero_nor_one(kind):
    findings = found(f08()[kind])
    assert findings["D306"].severity == "unknown"
    assert "moves every 40 decode steps" in findings["D306"].summary
    assert "--decode-log-interval 1" in findings["D306"].remedy
    assert "D208" not in findings and "D207" not in findings


def test_f09_a_ttft_below_the_floor_is_impossible():
    model = kimi()
    device = replace(DEVICE, flops=DEVICE.flops * prefill_floor_s(model, DEVICE, 64_000) / 18.0)
    assert prefill_floor_s(model, device, 64_000) == pytest.approx(18.0)
    findings = found(f09(), facts=Facts(model=model, device=device))
    assert findings["D101"].summary.startswith("Impossible: TTFT is 2 s at 64k tokens")
    assert "at least 18 s" in findings["D101"].summary and "unusable" in findings["D101"].summary
    assert findings["D101"].hypotheses[0].name == "prefix_hit"
    case = cases(f09(), facts=Facts(model=model, device=device))[0]
    assert 64_000 not in [point.context_len for point in case.curve("ttft_s").points]


def test_f09_without_the_device_it_is_still_suspected():
    finding = found(f09())["D301"]
    assert "falls from 7.6 s at 32k tokens to 2 s at 64k tokens" in finding.summary
    assert "suspected" in finding.summary


def test_f10_three_near_points_tell_neither_law_and_say_which_would():
    finding = found(f10())["D103"]
    assert finding.severity == "unknown"
    assert "linear or quadratic can't be told" in finding.summary
    assert "16,000" in finding.remedy
    assert "D104" not in found(f10()) and "D107" not in found(f10())
