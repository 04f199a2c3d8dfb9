"""Curves, pairs, and what a case takes from its run where its reader says nothing."""

from dataclasses import replace
from functools import partial

import pytest
from diagnosis_runs import DEVICE, cases, clean, drafted, joined, kimi, linear, measured, table

from deepdraft.diagnosis.acceptance import statements, trusted_acceptance_len
from deepdraft.diagnosis.attribution import attributions
from deepdraft.diagnosis.explain import findings_of
from deepdraft.diagnosis.facts import Facts
from deepdraft.diagnosis.pairing import pairs
from deepdraft.records import Acceptance, StepParts
from deepdraft.stats.interval import CannotTell


def lens(curve):
    return [point.context_len for point in curve.points]


def test_a_curve_takes_the_lowest_concurrency_only():
    run = joined(clean(lens=(1_000, 4_000)), clean(lens=(1_000, 4_000), concurrency=4))
    curve = cases(run)[0].curve("tpot_s")
    assert [(point.context_len, point.point.concurrency) for point in curve.points] == [(1_000, 1), (4_000, 1)]


def test_cached_points_are_on_no_curve_and_named():
    run = table(
        {"context_len": 1_000, "ttft_s": 1.0},
        {"context_len": 4_000, "ttft_s": 0.1, "is_cold": False},
        {"context_len": 8_000, "ttft_s": 9.0},
    )
    curve = cases(run)[0].curve("ttft_s")
    assert lens(curve) == [1_000, 8_000]
    assert curve.left_out == ("4.0k tokens: its prompts were in the prefix cache",)


def test_of_several_workloads_the_one_with_most_points_is_the_curve():
    rows = [(1_000, "a"), (2_000, "b"), (4_000, "a"), (8_000, "a")]
    run = table(*[{"context_len": length, "tpot_s": 0.02, "workload": text} for length, text in rows])
    assert lens(cases(run)[0].curve("tpot_s")) == [1_000, 4_000, 8_000]
    alone = table(*[{"context_len": length, "tpot_s": 0.02, "workload": str(length)} for length, _ in rows])
    assert lens(cases(alone)[0].curve("tpot_s")) == []


def test_reported_steps_count_as_steps_only_beside_tokens_a_step():
    rows = [{"context_len": length, "tpot_s": 0.02, "step_s": 0.02} for length in (1_000, 8_000)]
    case = cases(table(*rows, speculation="yes"))[0]
    assert not case.is_step_known and case.decode_curve.figure == "tpot_s"
    told = [row | {"step_s": 0.06, "tokens_per_step": 3.0} for row in rows]
    case = cases(table(*told, speculation="yes"))[0]
    assert case.is_step_known and case.decode_curve.figure == "step_s"
    case = cases(table(*rows, speculation="no"))[0]
    assert case.is_step_known and case.decode_curve.figure == "tpot_s", "without a drafter a token is a step"
    assert cases(drafted())[0].decode_curve.figure == "step_s"


def test_rounding_that_may_reach_zero_is_not_carried_over():
    run = table(
        {"context_len": 1_000, "decode_tok_s": (0.04, 0.05)}, {"context_len": 8_000, "decode_tok_s": (0.7, 0.05)}
    )
    small, large = cases(run)[0].curve("tpot_s").observed
    assert small.rounding is None and small.middle == 25
    assert large.rounding == pytest.approx((1 / 0.75, 1 / 0.65))


def test_laws_of_a_single_point_cannot_be_told():
    case = cases(clean(lens=(4_000,)))[0]
    assert isinstance(case.prefill_law, CannotTell) and isinstance(case.decode_law, CannotTell)
    assert isinstance(case.decode_knee, CannotTell) and case.decode_segments == ()


def test_pairs_are_of_lengths_within_five_per_cent():
    near = measured(linear(0.02, 0.05), lambda _: 0.04, lens=(1_040, 4_300, 64_000))
    case, other = cases(clean(), near)
    assert [(pair.context_len, pair.other.context_len) for pair in pairs(case, other, "tpot_s")] == [
        (1_000, 1_040),
        (64_000, 64_000),
    ]
    assert pairs(case, other, "tpot_s")[0].ratio == pytest.approx(0.04 / 0.02004, rel=0.01)


def test_baselines_are_the_runs_without_a_drafter():
    case, plain, other = cases(drafted(), clean(), drafted())
    assert [each.name for each in case.baselines] == [plain.name]
    assert plain.baselines == () and [each.name for each in other.baselines] == [plain.name]


def test_device_and_ranks_come_from_the_run_where_nobody_says():
    told = clean(spec={"device": "8 x RTX PRO 6000 Blackwell"}, model="Kimi K2.6", settings={"tp_size": 8})
    case = cases(told)[0]
    assert case.device is not None and case.device.name == "RTX PRO 6000 Blackwell"
    assert case.tp_size == 8 and case.kv_bytes_per_token == 70_272
    assert case.model is not None
    given = cases(told, facts=Facts(device=DEVICE, tp_size=4))[0]
    assert given.device is DEVICE and given.tp_size == 4


def test_a_model_known_by_name_alone_is_not_used_without_the_number_of_ranks():
    assert cases(clean(model="Kimi K2.6"))[0].model is None
    nested = {"vllm_config": {"parallel_config": {"tensor_parallel_size": 8}}, "kv_cache_dtype": "fp8"}
    case = cases(clean(model="Kimi K2.6", settings=nested))[0]
    assert case.tp_size == 8 and case.kv_bytes_per_token == 35_136


def test_statements_of_one_set_of_counts_agree():
    case = cases(drafted())[0]
    said = statements(case.points[0])
    assert len(said) == 2 and said[0].tokens_per_step == pytest.approx(said[1].tokens_per_step)
    assert trusted_acceptance_len(case, case.points[0]) == pytest.approx(2.97, abs=0.01)


def test_a_lifetime_average_is_not_trusted():
    average = Acceptance(source="gauge", stated_acceptance_len=3.0, is_lifetime_average=True)
    case = cases(drafted(acceptance=lambda _: average))[0]
    assert trusted_acceptance_len(case, case.points[0]) is None


def test_attribution_of_steps_names_the_drafters_part_and_sums():
    facts = Facts(model=kimi(), device=replace(DEVICE, all_reduce_s=20e-6), tp_size=8)
    rows = attributions(cases(drafted(), clean(), facts=facts)[0])
    assert [row.context_len for row in rows] == [1_000, 4_000, 16_000, 64_000]
    for row in rows:
        parts = {part.name: part.seconds for part in row.parts}
        assert set(parts) == {"weights", "KV read", "collectives", "draft and verify"}
        assert parts["draft and verify"] == pytest.approx(0.01, rel=0.05)
        assert parts["collectives"] == pytest.approx(122 * 20e-6)
        assert row.per == "step" and row.measured_s is not None and row.residual_s is not None
        assert sum(parts.values()) + row.residual_s == pytest.approx(row.measured_s)


def test_attribution_needs_the_model_and_the_device():
    assert attributions(cases(clean())[0]) == ()


def test_launches_are_a_part_in_eager_mode_and_several_streams_are_not_attributed():
    facts = Facts(model=kimi(), device=DEVICE, tp_size=8)
    eager = clean(engine="vllm", settings={"enforce_eager": True})
    (parts, *_) = [row.parts for row in attributions(cases(eager, facts=facts)[0])]
    assert [part.name for part in parts] == ["weights", "KV read", "launches"]
    assert attributions(cases(clean(concurrency=4), facts=facts)[0]) == ()


def with_parts(seconds_a_step, **fields):
    """A run with a drafter whose server tells where its 32 steps went."""
    told = StepParts(draft_s=32 * 0.004, build_s=32 * 0.001, verify_s=32 * seconds_a_step, compact_s=0.0, other_s=0.0)
    return drafted(acceptance=lambda counts: replace(counts, parts=told), **fields)


def test_parts_that_the_server_measured_stand_instead_of_floors():
    run = with_parts(0.02)
    facts = Facts(model=kimi(), device=DEVICE, tp_size=8)
    for row in (*attributions(cases(run)[0]), *attributions(cases(run, clean(), facts=facts)[0])):
        parts = {part.name: part.seconds for part in row.parts}
        assert parts == pytest.approx({"draft": 0.004, "build": 0.001, "verify": 0.02, "compact": 0.0, "other": 0.0})
        assert row.per == "step" and row.measured_s is not None and row.residual_s is not None
        assert sum(parts.values()) + row.residual_s == pytest.approx(row.measured_s)
    assert attributions(cases(with_parts(0.02, concurrency=4))[0]) == ()  # steps are shared there


@pytest.mark.parametrize(("seconds_a_step", "is_off"), [(0.025, False), (0.02, False), (0.05, True), (0.005, True)])
def test_step_time_over_token_time_is_a_third_source(seconds_a_step, is_off):
    """A step takes 30 ms by the client's clock."""
    found = [each for each in findings_of(cases(with_parts(seconds_a_step))[0]) if each.code == "D203"]
    assert bool(found) == is_off
    if is_off:
        assert "its seconds a step over the client's seconds a token" in found[0].summary
        assert len(found[0].evidence) == 3


@pytest.mark.parametrize(("per_1k_s", "is_found"), [(0.0002, True), (0.0, False), (0.00001, False)])
def test_a_drafter_that_reads_all_of_its_cache_shows_in_the_servers_own_parts(per_1k_s, is_found):
    """Steps of 30 ms; the draft pass grows with the context, from 1k to 64k."""
    runs = []
    for length in (1_000, 4_000, 16_000, 64_000):
        told = StepParts(draft_s=32 * (0.001 + per_1k_s * length / 1e3), verify_s=32 * 0.012, other_s=0.0)
        acceptance = partial(_with, parts=told)
        runs.append(drafted(lens=(length,), acceptance=acceptance))
    found = [each for each in findings_of(cases(joined(*runs))[0]) if each.code == "D210"]
    assert bool(found) == is_found
    if is_found:
        assert (
            "drafter's own pass takes 1.2 ms of a step at 1.0k tokens and 13.8 ms at 64k tokens" in found[0].summary
        )


def _with(counts, **fields):
    return replace(counts, **fields)
