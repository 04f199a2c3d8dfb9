"""How far the data support a cause."""

from dataclasses import replace

import pytest
from diagnosis_runs import DEVICE, cases, clean, drafted, kimi, table
from trace_builder import reading

from deepdraft.diagnosis.facts import Facts
from deepdraft.diagnosis.hypotheses.absorbed_prefill import absorbed_prefill
from deepdraft.diagnosis.hypotheses.drafter_rescan import drafter_rescan
from deepdraft.diagnosis.hypotheses.no_cuda_graph import no_cuda_graph
from deepdraft.diagnosis.hypotheses.page_scatter import page_scatter
from deepdraft.diagnosis.hypotheses.prefix_hit import prefix_hit
from deepdraft.diagnosis.hypotheses.retraction import num_preemptions, retraction
from deepdraft.diagnosis.hypotheses.serial_kv_walk import serial_kv_walk


def case(run=None, **facts):
    return cases(run or clean(), facts=Facts(**facts))[0]


@pytest.mark.parametrize(
    ("rate", "support"),
    [
        (14e9, "some"),
        (5e9, "some"),
        (20e9, "some"),
        (30e9, "weak"),
        (2.5e9, "weak"),
        (1e9, "against"),
        (400e9, "against"),
    ],
)
def test_serial_walk_lies_in_a_band(rate, support):
    assert serial_kv_walk(case(), rate).support == support


def test_serial_walk_is_strong_only_with_counted_steps_and_a_measured_device():
    measured = replace(DEVICE, unsplit_bytes_s=13.5e9)
    assert serial_kv_walk(case(device=measured), 14e9).support == "strong"
    unknown = table(*[{"context_len": n, "tpot_s": 0.1} for n in (1_000, 9_000)], speculation="yes")
    said = serial_kv_walk(case(unknown, device=measured), 14e9)
    assert said.support == "some" and "upper bound" in said.why


def test_serial_walk_is_decided_by_the_drafter_where_there_is_one():
    assert "--speculative-algorithm" in serial_kv_walk(case(drafted()), 14e9).experiment
    assert "--speculative" not in serial_kv_walk(case(), 14e9).experiment
    assert "--triton-attention-num-kv-splits" in serial_kv_walk(case(), 14e9).experiment


@pytest.mark.parametrize(
    ("page_size", "factor", "support"),
    [(1, 2.0, "weak"), (None, 2.0, "weak"), (16, 2.0, "against"), (1, 130.0, "against"), (1, 4.0, "weak")],
)
def test_page_scatter_explains_two_and_a_half_times_at_most(page_size, factor, support):
    assert page_scatter(case(clean(page_size=page_size)), factor).support == support


@pytest.mark.parametrize(
    ("settings", "growing", "support"),
    [
        ({"enforce_eager": True}, 0.9, "strong"),
        ({"vllm_config": {"model_config": {"enforce_eager": True}}}, 0.1, "strong"),
        ({"disable_cuda_graph": False}, 0.1, "against"),
        ({}, 0.9, "against"),
        ({}, 0.2, "weak"),
    ],
)
def test_no_cuda_graph_is_a_constant(settings, growing, support):
    assert no_cuda_graph(case(clean(settings=settings)), growing).support == support


def test_a_drafter_with_a_window_does_not_rescan():
    assert drafter_rescan(case(drafted())).support == "some"
    window = {"speculative_draft_window_size": 4096}
    assert drafter_rescan(case(drafted(settings=window))).support == "against"
    unknown = table(*[{"context_len": n, "tpot_s": 0.1} for n in (1_000, 9_000)], speculation="yes")
    assert drafter_rescan(case(unknown)).support == "weak"


def test_absorbed_prefill_needs_a_latent():
    said = absorbed_prefill(case(clean(settings={"attention_backend": "triton"}), model=kimi(), tp_size=8))
    assert said is not None and said.support == "some" and "3.4x" in said.why
    other = absorbed_prefill(case(clean(engine="vllm"), model=kimi(), tp_size=8))
    assert other is not None and other.support == "weak" and "--" not in other.experiment
    assert absorbed_prefill(case()) is None


@pytest.mark.parametrize(("pool", "support"), [(None, "weak"), (205_000, "some"), (1_000_000, "against")])
def test_retraction_is_near_the_pools_size(pool, support):
    assert retraction(case(clean(kv_pool_tokens=pool)), 185_000).support == support


def test_preemptions_are_counted_over_the_trials():
    looks = {"before": reading(0.0, num_preemptions=3), "after": reading(9.0, num_preemptions=5)}
    run = clean(lens=(4_000,), trial_fields=looks, kv_pool_tokens=1_000_000)
    assert num_preemptions(case(run)) == 3 * 2
    said = retraction(case(run), 4_000)
    assert said.support == "strong" and "6 preemptions" in said.why


@pytest.mark.parametrize(("is_cold", "support"), [(None, "some"), (True, "weak"), (False, "strong")])
def test_a_prefix_hit_rests_on_what_is_known_of_the_cache(is_cold, support):
    made = case(table({"context_len": 64_000, "ttft_s": 2.0, "is_cold": is_cold}))
    said = prefix_hit(made, made.points[0])
    assert said.support == support and "/flush_cache" in said.experiment
