"""The clock takes the least of what it ran; rates are above zero and of the size asked for."""

from __future__ import annotations

import time

import pytest

from deepdraft.infer.components.clock import BUFFER_BYTES, MIN_RUNS, Machine, ceiling, least_s


def test_it_runs_at_least_twice_after_a_warm_up() -> None:
    calls: list[float] = []
    least_s(lambda: calls.append(0.0), 0.0)
    assert len(calls) == 1 + MIN_RUNS
    calls.clear()
    least_s(lambda: calls.append(0.0), 0.0, is_warm=True)
    assert len(calls) == MIN_RUNS


def test_it_takes_the_least() -> None:
    pauses = iter((0.05, 0.002))
    found = least_s(lambda: time.sleep(next(pauses)), 0.01, is_warm=True)
    assert 0.002 <= found < 0.05


@pytest.mark.parametrize("num_bytes", [1, 1 << 20, 10 * BUFFER_BYTES])
def test_rates_of_any_size(num_bytes: int) -> None:
    machine = Machine()
    assert machine.copy_bytes_s(num_bytes) > 0
    assert machine.read_bytes_s(num_bytes) > 0


def test_a_ceiling_is_the_longer_of_its_times() -> None:
    found = ceiling()
    assert found.matrix_flop_s > 0
    assert found.seconds(found.copy_bytes_s, 0) == pytest.approx(1.0)
    assert found.seconds(found.copy_bytes_s, 2 * found.matrix_flop_s) == pytest.approx(2.0)
