"""A loop that is kept busy on purpose shows as busy, an idle one does not."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from deepdraft.transport.lag import LagProbe, LoopLag


def block(seconds: float) -> tuple[float, float]:
    """Keep the loop busy; from when to when it truly was."""
    from_at = time.monotonic()
    time.sleep(seconds)
    return from_at, time.monotonic()


def test_a_stop_is_seen_with_its_length(loopback: Any, least_disturbed: Any) -> None:
    async def work() -> tuple[LoopLag, float]:
        async with LagProbe() as probe:
            await asyncio.sleep(0.05)
            from_at = time.monotonic()
            await asyncio.sleep(0.1)
            stop_from_at, stop_to_at = block(0.2)
            await asyncio.sleep(0.1)
            return probe.lag(from_at, time.monotonic()), stop_to_at - stop_from_at

    lag, stop_s = least_disturbed(lambda: loopback.run(work()), lambda seen: seen[0].max_s - seen[1], enough=0.02)
    assert lag.max_s is not None
    assert lag.p99_s is not None
    # The tick was due up to one interval after the stop began.
    assert stop_s - 0.012 <= lag.max_s <= stop_s + 0.1
    assert lag.late_s >= lag.max_s
    # Nearly half of the window's moments fell into the stop, so its 99th percentile is near the maximum.
    assert lag.p99_s > stop_s * 0.8
    assert lag.num_samples < lag.window_s / 0.010 - 15
    assert lag.cpu_s is not None
    assert lag.cpu_s < stop_s


def test_an_idle_loop_is_no_later_than_the_machine(loopback: Any, least_disturbed: Any) -> None:
    async def work() -> tuple[LoopLag, float]:
        async with LagProbe() as probe:
            machine_late_s = 0.0
            from_at = time.monotonic()
            for _ in range(30):
                slept_at = time.monotonic()
                await asyncio.sleep(0.010)
                machine_late_s += time.monotonic() - slept_at - 0.010
            return probe.lag(from_at, time.monotonic()), machine_late_s

    lag, machine_late_s = least_disturbed(
        lambda: loopback.run(work()), lambda seen: seen[0].late_s - seen[1], enough=0.05
    )
    assert lag.num_samples > 5
    assert lag.late_s <= machine_late_s + 0.05
    assert lag.cpu_s is not None
    assert lag.cpu_s < 0.1


def test_the_percentile_counts_moments_rather_than_samples(loopback: Any) -> None:
    """A stop is one sample among hundreds, but it held a good part of the window's moments."""

    async def work() -> LoopLag:
        async with LagProbe(interval_s=0.001) as probe:
            from_at = time.monotonic()
            while probe.lag(from_at, time.monotonic()).num_samples < 120:
                await asyncio.sleep(0.02)
            block(0.1)
            await asyncio.sleep(0.02)
            return probe.lag(from_at, time.monotonic())

    lag = loopback.run(work())
    assert lag.window_s < 5  # so that 1 % of its moments are fewer than those of the stop
    assert lag.p99_s is not None
    assert lag.p99_s > 0.05


def test_a_window_knows_only_its_own_part(loopback: Any, least_disturbed: Any) -> None:
    async def work() -> tuple[LoopLag, LoopLag, LoopLag, LoopLag, LoopLag]:
        async with LagProbe() as probe:
            await asyncio.sleep(0.03)
            stop_from_at, stop_to_at = block(0.2)
            still_going_on = probe.lag(stop_from_at, stop_to_at)
            await asyncio.sleep(0.05)
            after_at = time.monotonic()
            await asyncio.sleep(0.05)
            middle_at = (stop_from_at + stop_to_at) / 2
            whole = probe.lag(stop_from_at, after_at)
            first_half, second_half = probe.lag(stop_from_at, middle_at), probe.lag(middle_at, after_at)
            within = probe.lag(middle_at, middle_at + 0.05)
        assert whole.max_s is not None and whole.max_s >= 0.18
        assert first_half.max_s is not None and first_half.max_s <= middle_at - stop_from_at
        assert within.num_samples == 0
        assert within.max_s == pytest.approx(0.05)
        return whole, still_going_on, first_half, second_half, within

    # A loop that is held up by the machine as well, beyond the stop of 0.2 s, has a longer whole than its parts tell.
    whole, still_going_on, first_half, second_half, _ = least_disturbed(
        lambda: loopback.run(work()), lambda seen: max(seen[0].max_s - 0.2, seen[3].max_s - 0.1), enough=0.001
    )
    assert still_going_on.max_s == pytest.approx(whole.max_s, abs=0.015)
    assert second_half.max_s <= whole.max_s - first_half.max_s + 0.001


def test_cpu_is_the_processes_own(loopback: Any) -> None:
    async def work() -> tuple[LoopLag, float]:
        async with LagProbe() as probe:
            await asyncio.sleep(0.02)
            from_at, from_cpu_s = time.monotonic(), time.process_time()
            while time.process_time() - from_cpu_s < 0.15:
                await asyncio.sleep(0)
            spent_s = time.process_time() - from_cpu_s
            return probe.lag(from_at, time.monotonic()), spent_s

    lag, spent_s = loopback.run(work())
    assert lag.cpu_s == pytest.approx(spent_s, abs=0.04)
    assert lag.num_samples > 5


def test_nothing_is_said_of_times_without_the_probe(loopback: Any) -> None:
    async def work() -> None:
        before_at = time.monotonic()
        async with LagProbe() as probe:
            started_at = time.monotonic()
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.01)
        nothing = LoopLag(0.0, 0, None, None, 0.0, None)
        assert probe.lag(before_at, before_at) == nothing
        after_at = time.monotonic()
        assert probe.lag(after_at, after_at) == nothing
        assert probe.lag(started_at, after_at).max_s is not None

    loopback.run(work())


def test_leaving_the_block_ends_the_sampling(loopback: Any) -> None:
    async def work() -> tuple[int, int]:
        async with LagProbe(interval_s=0.002) as probe:
            from_at = time.monotonic()
            await asyncio.sleep(0.1)
        num_samples = probe.lag(from_at, time.monotonic()).num_samples
        await asyncio.sleep(0.02)
        return num_samples, probe.lag(from_at, time.monotonic()).num_samples

    before, after = loopback.run(work())
    assert before == after > 1
