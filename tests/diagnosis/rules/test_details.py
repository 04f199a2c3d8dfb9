"""What findings say, beyond that they fire."""

from dataclasses import replace

import pytest
from diagnosis_runs import DEVICE, clean, drafted, found, joined, kimi, linear, measured, table
from faulty_runs import FAULTY
from trace_builder import request, steady, trial

from deepdraft.cost.device import device
from deepdraft.diagnosis.acceptance import standard_error
from deepdraft.diagnosis.curve import GuardedPoint
from deepdraft.diagnosis.facts import Facts
from deepdraft.metrics import points_of
from deepdraft.records import Acceptance, DraftDecisions, Run


def fault(code, **changes):
    runs, facts = FAULTY[code]()
    return found(*runs, facts=replace(facts, **changes))[code]


def values(finding, name):
    return [evidence.value for evidence in finding.evidence if evidence.name == name]


def test_effective_bandwidth_is_kv_bytes_over_the_slope():
    finding = fault("D105")
    assert values(finding, "effective bandwidth")[0] == pytest.approx(70_272 / 5e-6, rel=0.02)
    assert values(finding, "attainable") == [0.25e12], (
        "nothing was measured on this device: a quarter of its bandwidth"
    )
    assert finding.worth == pytest.approx(0.25e12 / (70_272 / 5e-6), rel=0.02)
    fp8 = fault("D105", kv_element_bytes=1)
    assert values(fp8, "effective bandwidth")[0] == pytest.approx(35_136 / 5e-6, rel=0.02)


def test_what_is_attained_on_a_measured_device_counts():
    card = device("RTX PRO 6000")
    finding = fault("D105", device=card)
    assert values(finding, "attainable")[0] == pytest.approx(0.38 * 1.792e12, rel=0.05)
    assert finding.hypotheses[0].name == "serial_kv_walk" and finding.hypotheses[0].support == "strong"


def test_a_decode_near_what_kernels_attain_is_no_finding():
    run = measured(linear(0.5, 0.5), linear(0.005, 70_272 / 0.6e12 * 1e3))
    assert "D105" not in found(run, facts=Facts(model=kimi(), device=device("RTX PRO 6000"), tp_size=8))


def test_without_model_and_device_it_says_what_to_give():
    run = measured(linear(0.5, 0.5), linear(0.02, 0.005))
    assert "--model config.json and --device NAME" in found(run)["D105"].summary
    assert "--model" not in found(run, facts=Facts(model=kimi()))["D105"].summary


def test_several_streams_say_nothing_of_the_cache_reading_rate():
    run = measured(linear(0.5, 0.5), linear(0.02, 0.005), concurrency=4)
    assert "D105" not in found(run, facts=Facts(model=kimi(), device=DEVICE, tp_size=8))


def test_the_prefill_law_is_recovered():
    finding = fault("D103")
    assert values(finding, "c")[0] == pytest.approx(0.009e-6, rel=0.03)
    assert values(finding, "quadratic share")[0] == pytest.approx(0.958, abs=0.02)


def test_the_knee_is_where_it_was_made():
    finding = fault("D107")
    assert "between 64k and 128k" in finding.summary
    assert "repeats and rounding can't explain it" in finding.summary


def test_break_even_acceptance_is_the_quotient_of_the_steps():
    """At 64k a step takes 158 ms with and 22.6 ms without the drafter: 7 tokens a step would break even."""
    finding = fault("D211")
    assert "loses at 64k tokens" in finding.summary
    said = float(finding.summary.split("break_even_acceptance_len is ")[1].split(" ")[0].rstrip("."))
    assert said == pytest.approx((0.03 + 0.002 * 64) / (0.02 + 0.00004 * 64), rel=0.03)
    assert "does not lose" in finding.summary and "not located" in finding.summary


def test_speculation_that_pays_is_no_finding():
    assert "D211" not in found(drafted(), clean())


def test_no_baseline_leaves_the_question_open():
    assert found(drafted())["D211"].severity == "unknown"
    assert "without --speculative-algorithm" in found(drafted())["D211"].remedy


def test_drafts_deeper_than_what_is_accepted():
    finding = fault("D212")
    assert "15 tokens deep" in finding.summary and "beyond depth 3" in finding.summary
    assert finding.remedy.startswith("Draft 3 tokens")


def test_of_a_tree_its_depth_counts_and_not_its_nodes():
    tree = Acceptance(
        source="meta_info",
        num_steps=96,
        num_draft_tokens=96 * 32,
        num_accepted_tokens=120,
        accepted_at_depth=(80, 40),
    )
    run = drafted(acceptance=lambda _: tree, speculation_method="DDTree, budget 32")
    assert "D212" not in found(run)


def test_a_contradiction_is_no_statement_of_acceptance():
    codes = set(found(*FAULTY["D201"]()[0]))
    assert "D208" not in codes and "D209" not in codes


def test_the_larger_draft_is_the_one_at_fault():
    (tree, chain), _ = FAULTY["D215"]()
    assert "D215" in found(tree, chain) and "D215" not in found(chain, tree)


def test_why_drafting_was_off_is_said_in_words():
    finding = fault("D216")
    assert "94 % of the steps plainly (88 % below break-even, 6.2 % to learn what a step costs)" in finding.summary
    assert "to commit 5.1 tokens to break even, 2.75 were expected, " in finding.summary
    assert "--speculation always" in finding.remedy


def test_few_rounds_of_a_server_that_left_drafting_off_are_no_finding_of_their_own() -> None:
    (run,), _ = FAULTY["D208"]()
    assert "D208" in found(run)
    decisions = DraftDecisions(rounds_by_reason={"probe": 2}, plain_steps_by_reason={"below_break_even": 60})
    off = [replace(each, acceptance=replace(each.acceptance, decisions=decisions)) for each in run.measurements]
    assert {"D208", "D216"} & set(found(replace(run, measurements=tuple(off)))) == {"D216"}


def test_drafting_that_is_hardly_ever_off_is_no_finding():
    (run,), _ = FAULTY["D216"]()
    decisions = DraftDecisions(rounds_by_reason={"pays": 19}, plain_steps_by_reason={"learning": 1})
    mostly_on = [replace(each, acceptance=replace(each.acceptance, decisions=decisions)) for each in run.measurements]
    assert "D216" not in found(replace(run, measurements=tuple(mostly_on)))
    decisions = DraftDecisions(plain_steps_by_reason={"never": 20})
    never = [
        replace(each, acceptance=Acceptance(source="s", num_steps=0, num_accepted_tokens=0, decisions=decisions))
        for each in run.measurements
    ]
    (evidence, *_) = found(replace(run, measurements=tuple(never)))["D216"].evidence
    assert evidence.value == "100 %"
    assert (
        "switched off by its flag): no verify step was made"
        in found(replace(run, measurements=tuple(never)))["D216"].summary
    )


def test_out_of_memory_in_a_prefill_is_told_with_its_words():
    failed = request(steady(1), failed="Prefill out of memory. Try to lower your batch size.")
    run = Run(header=clean().header, measurements=(failed,), trials=(trial(),))
    finding = found(run)["D402"]
    assert "Prefill out of memory" in finding.summary and "--chunked-prefill-size" in finding.remedy


def test_the_prefill_spike_is_that_of_the_experts_buffer():
    finding = fault("D402")
    assert values(finding, "prefill_spike_bytes") == [896 * 2**20]
    assert "D402" not in found(*FAULTY["D402"]()[0], facts=Facts(model=kimi(), tp_size=8, reserve_bytes=5e9))


def test_saturation_names_the_pool_where_it_is_the_reason():
    one = measured(linear(0.02, 0.05), lambda _: 0.02, lens=(4_000,), kv_pool_tokens=9_000)
    four = measured(linear(0.02, 0.05), lambda _: 0.1, lens=(4_000,), concurrency=4)
    finding = found(joined(one, four))["D109"]
    assert "stops growing at concurrency 1" in finding.summary
    assert "9,000 tokens holds 2 such prompts" in finding.summary


def test_labels_within_two_per_cent_are_the_length():
    near = table({"asked_context_len": 128_000, "context_len": 127_400, "decode_tok_s": 50.0})
    assert "D302" not in found(near)


def test_the_standard_error_follows_from_the_steps():
    run = drafted(lens=(4_000,))
    (point,) = points_of(run)
    guarded = GuardedPoint(point=point, guards=())
    assert standard_error(guarded, 2.97) == pytest.approx(0.81 / 96**0.5, rel=0.05)
    bare = table({"context_len": 4_000, "acceptance": Acceptance(source="s", num_steps=100, num_accepted_tokens=200)})
    (point,) = points_of(bare)
    assert standard_error(GuardedPoint(point=point, guards=()), 3.0) == pytest.approx((3 * 2 / 100) ** 0.5)
