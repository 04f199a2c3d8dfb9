"""Two pools make a line; a log's figures make a calibration, or one line that says what is missing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.deployment import GIB, calibrated, kimi, sglang

from deepdraft.errors import UsageError
from deepdraft.planner.calibrate import (
    calibration_of_pools,
    calibration_of_start,
    calibration_of_two_pools,
    fraction_for,
    predicted_line,
    predicted_pool,
    settings_of,
)
from deepdraft.planner.settings import LlamacppSettings, SglangSettings, VllmSettings

LOW, HIGH = (0.85, 101_134), (0.94, 218_484)


def test_two_pools_tell_every_other_fraction_without_a_model() -> None:
    line = calibration_of_two_pools(LOW, HIGH, SglangSettings())
    assert predicted_pool(line, 0.85) == 101_134
    assert predicted_pool(line, 0.94) == 218_484
    assert predicted_pool(line, 0.92) == pytest.approx(192_400, rel=2e-3)
    assert predicted_pool(line, 0.93) == pytest.approx(205_400, rel=2e-3)
    assert predicted_line(line)[1] / 100 == pytest.approx(13_039, abs=1)


def test_the_order_of_the_pools_does_not_matter() -> None:
    assert calibration_of_two_pools(LOW, HIGH, SglangSettings()) == calibration_of_two_pools(
        HIGH, LOW, SglangSettings(mem_fraction_static=0.5)
    )


def test_a_pool_below_nothing_is_none() -> None:
    assert predicted_pool(calibration_of_two_pools(LOW, HIGH, SglangSettings()), 0.7) == 0


@given(
    weights=st.floats(0.05, 0.8),
    tokens_per_frac=st.integers(10_000, 10_000_000),
    fraction=st.floats(0.1, 1.0),
    page_size=st.sampled_from([1, 16, 64]),
)
def test_the_line_is_that_of_the_two_pools(weights, tokens_per_frac, fraction, page_size) -> None:
    def pool(at: float) -> int:
        return int(tokens_per_frac * (at - weights)) // page_size * page_size

    low, high = weights + 0.01, weights + 0.15
    if pool(low) == pool(high):
        return
    line = calibration_of_two_pools((low, pool(low)), (high, pool(high)), SglangSettings(page_size=page_size))
    # Each pool is off by less than a page; away from both the error grows with the distance between them.
    reach = 1 + 2 * max(abs(fraction - low), abs(fraction - high)) / (high - low)
    found = predicted_pool(line, fraction)
    assert found % page_size == 0
    assert abs(found - max(0, pool(fraction))) <= page_size * (reach + 1) + 1


@given(wanted=st.integers(1, 300_000))
def test_the_fraction_for_a_pool_is_the_smallest_that_holds_it(wanted) -> None:
    line = calibration_of_two_pools(LOW, HIGH, SglangSettings())
    fraction = fraction_for(line, wanted)
    assert predicted_pool(line, fraction) >= wanted - 1
    assert predicted_pool(line, fraction - 0.001) < wanted


def test_pools_that_are_no_line_are_refused() -> None:
    for first, second, word in ((LOW, LOW, "one fraction"), (LOW, (0.94, 90_000), "does not grow")):
        with pytest.raises(UsageError, match=word):
            calibration_of_two_pools(first, second, SglangSettings())
    with pytest.raises(UsageError, match="no fraction"):
        calibration_of_two_pools(LOW, HIGH, LlamacppSettings())
    with pytest.raises(UsageError, match="one pool or two"):
        calibration_of_pools([LOW, HIGH, LOW], SglangSettings())


def test_one_pool_tells_no_line_but_calibrates_a_model() -> None:
    one = calibration_of_pools([HIGH], sglang())
    with pytest.raises(UsageError, match="two fractions"):
        predicted_pool(one, 0.9)
    assert kimi(sglang(), one).kv_pool_tokens == pytest.approx(218_484, abs=1)
    # What is free before the weights stays an estimate, which two fractions far apart show.
    assert kimi(sglang(mem_fraction_static=0.85), one).kv_pool_tokens == pytest.approx(101_134, rel=0.02)


@pytest.mark.parametrize("fraction", [0.85, 0.92, 0.93, 0.94])
def test_two_pools_and_a_model_agree_with_the_line(fraction) -> None:
    both = calibration_of_pools([LOW, HIGH], sglang())
    assert kimi(sglang(mem_fraction_static=fraction), both).kv_pool_tokens == pytest.approx(
        predicted_pool(both, fraction), rel=2e-3
    )


def test_settings_of_a_start_are_typed_and_what_it_states_wins() -> None:
    found = settings_of(
        "vllm",
        {
            "gpu_memory_utilization": "0.9",
            "block_size": "16",
            "max_num_seqs": "auto",
            "enforce_eager": "False",
            "x": 1,
        },
        {"gpu_memory_utilization": 0.5, "tensor_parallel_size": 2},
    )
    assert found == VllmSettings(gpu_memory_utilization=0.9, block_size=16, tensor_parallel_size=2)


def test_a_start_that_tells_nothing_is_one_clear_line() -> None:
    with pytest.raises(UsageError, match=r"start\.log tells nothing of memory"):
        calibration_of_start("sglang", source="start.log", settings=sglang(), memory={}, kv_pool_tokens=None)
    with pytest.raises(UsageError, match="does not tell the --mem-fraction-static") as caught:
        calibration_of_start(
            "sglang", source="s", settings=sglang(mem_fraction_static=None), memory={}, kv_pool_tokens=9
        )
    assert "--started-with mem-fraction-static=" in str(caught.value.hint)


def test_what_was_free_after_the_weights_follows_where_the_start_does_not_say_it() -> None:
    memory = {"available_before_weights_bytes": 90 * GIB, "weight_bytes": 70 * GIB, "other": 1}
    found = calibration_of_start("sglang", source="s", settings=sglang(), memory=memory, kv_pool_tokens=5)
    assert found.available_after_weights_bytes == 20 * GIB
    assert found.reserve_bytes is None


def test_a_calibrated_plan_reproduces_its_own_start() -> None:
    plan = calibrated(sglang())
    assert plan.kv_pool_tokens == pytest.approx(218_484, abs=1)
    assert plan.reserve_bytes == pytest.approx(4.2 * GIB, rel=1e-6)
