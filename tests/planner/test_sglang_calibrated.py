"""Calibration beyond the reference figures: what is taken from a start, and what is not."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.reference import GIB, PRE_BYTES, plan_at, settings_at, started_at

from deepdraft.cost.device import device
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.engines import plan_for
from deepdraft.planner.open_model import open_model
from deepdraft.planner.settings import SglangSettings

QWEN, CARD = open_model("qwen3-8b"), device("H100")


@given(st.floats(0.8, 0.95), st.floats(0.8, 0.95), st.integers(-3 * GIB, 3 * GIB))
def test_a_start_that_differs_from_the_estimate_is_followed(known, asked, more_weights):
    """A machine whose weights or context take more or less: its own pool tells, whatever the estimate said."""
    truth_budget = PRE_BYTES * known - 72.4 * GIB - more_weights
    tokens = int(truth_budget / 77_184)
    if tokens < 1:
        return
    start = Calibration(
        source="server.log",
        settings=settings_at(known),
        kv_pool_tokens=tokens,
        available_before_weights_bytes=PRE_BYTES,
    )
    truth = max(int((PRE_BYTES * asked - 72.4 * GIB - more_weights) / 77_184), 0)
    assert plan_at(asked, start).kv_pool_tokens == pytest.approx(truth, abs=2)


@pytest.mark.parametrize("version", ["0.5.12", "0.5.23"])
@pytest.mark.parametrize("tokens", [1, 77_777, 101_134, 300_000])
def test_a_measured_pool_is_repeated_to_the_token(version, tokens):
    start = started_at(0.85, kv_pool_tokens=tokens)
    assert plan_at(0.85, start, version=version).kv_pool_tokens == tokens


def test_a_pool_alone_tells_the_weights():
    """Without free memory before the weights that is estimated, and its error counts by the fraction's difference."""
    start = started_at(0.85, available_before_weights_bytes=None)
    assert plan_at(0.85, start).kv_pool_tokens == 101_134
    assert plan_at(0.94, start).kv_pool_tokens == pytest.approx(218_484, rel=0.002)


def test_a_pool_in_another_type_tells_no_weights():
    """Cells differ, so only free memory is taken from that start."""
    fp8 = replace(started_at(0.85), settings=settings_at(0.85, kv_cache_dtype="fp8_e4m3"))
    with_pre = plan_at(0.94, fp8)
    assert "weights" in {each.name for each in with_pre.ledger.at("weights")}
    assert with_pre.ledger.at("outside")[0].certainty == "measured"


def test_a_capped_pool_tells_no_weights():
    capped = replace(started_at(0.85, kv_pool_tokens=1000), settings=settings_at(0.85, max_total_tokens=1000))
    assert plan_at(0.94, capped).kv_pool_tokens > 200_000


def test_free_memory_around_the_weights_works_for_pools_sized_after_capture():
    start = Calibration(
        source="server.log",
        settings=SglangSettings(mem_fraction_static=0.9),
        available_before_weights_bytes=round(78.0 * GIB),
        available_after_weights_bytes=round(62.4 * GIB),
    )
    plan = plan_for("sglang", "0.5.23", QWEN, CARD, SglangSettings(mem_fraction_static=0.9), start)
    assert plan.ledger.total_bytes("weights") == pytest.approx(15.6 * GIB, abs=2)
    assert plan.is_calibrated


def test_a_reserve_that_was_measured_moves_the_reserve_and_not_the_pool():
    settings = settings_at(0.93, max_running_requests=8)
    plain = started_at(0.85)
    less = replace(plain, settings=settings, kv_pool_tokens=205_445, reserve_bytes=3 * GIB)
    plan = plan_at(0.93, less, max_running_requests=8)
    assert plan.kv_pool_tokens == 205_445
    assert plan.reserve_bytes == pytest.approx(3 * GIB, abs=2**20)
    unexplained = next(each for each in plan.ledger.entries if each.certainty == "measured" and each.place == "slack")
    assert unexplained.num_bytes > 2 * GIB
    assert plan_at(0.93, less, max_running_requests=64).reserve_bytes < plan.reserve_bytes


def test_a_measured_cell_replaces_the_formula():
    """Of a fork that counts a token otherwise."""
    start = started_at(0.85, bytes_per_token=80_000.0)
    assert plan_at(0.85, start).bytes_per_token == 80_000
    assert plan_at(0.85, start).kv_pool_tokens == 101_134
