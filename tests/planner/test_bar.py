"""The bar: its cells are the device, nothing that has bytes goes missing, and the spike stands below the reserve."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.planner.deployment import GIB, calibrated, kimi, qwen_vllm, sglang

from deepdraft.planner.bar import FILLS, bar_lines, segments
from deepdraft.planner.ledger import Ledger, LedgerEntry
from deepdraft.planner.plan import Plan

BYTES = st.integers(0, 200 * GIB)


def plan_of(outside: int, weights: int, pool: int, slack: int, reserve: int, spike: int) -> Plan:
    """A plan with those parts; the device is their sum."""
    parts = {"outside": outside, "weights": weights, "pool": pool, "slack": slack, "spike": spike}
    entries = tuple(
        LedgerEntry(name=place, num_bytes=size, place=place, certainty="exact", source="")  # type: ignore[arg-type]
        for place, size in parts.items()
    )
    return replace(
        kimi(sglang()),
        device_bytes=outside + weights + pool + slack + reserve,
        ledger=Ledger(entries),
        reserve_bytes=reserve,
        prefill_spike_bytes=spike,
    )


@given(BYTES, BYTES, BYTES, BYTES, BYTES, BYTES, st.integers(30, 120))
def test_cells_are_in_proportion(outside, weights, pool, slack, reserve, spike, width) -> None:
    plan = plan_of(outside, weights, pool, slack, reserve, spike)
    lines = bar_lines(plan, width)
    parts = segments(plan)
    if not parts:
        assert lines == ()
        return
    assert all(len(line) <= width for line in lines)
    bar = lines[0]
    total = sum(part.num_bytes for part in parts)
    assert sum(part.num_bytes for part in parts) == plan.device_bytes
    cells = len(bar) - 2
    for part in parts:
        found = bar.count(FILLS[part.place])
        assert found >= 1
        assert abs(found - cells * part.num_bytes / total) <= len(parts)
    if spike:
        assert lines[1].strip() == "!" * len(lines[1].strip())
        if "." in bar:
            assert len(lines[1]) - len(lines[1].lstrip()) == bar.index(".")


def test_a_spike_that_fits_ends_inside_and_one_that_does_not_runs_past() -> None:
    bar, spike = bar_lines(calibrated(sglang(mem_fraction_static=0.85)))
    assert len(spike) < len(bar)
    bar, spike = bar_lines(plan_of(0, 50 * GIB, 30 * GIB, 0, 5 * GIB, 15 * GIB))
    assert len(spike) > len(bar)


@pytest.mark.parametrize("plan", [calibrated(sglang()), qwen_vllm()])
def test_the_whole_width_is_used(plan) -> None:
    assert max(len(line) for line in bar_lines(plan, 78)) == 78


def test_more_than_the_device_holds_stands_behind_its_end() -> None:
    plan = replace(plan_of(GIB, 90 * GIB, 20 * GIB, GIB, 0, GIB), device_bytes=80 * GIB, reserve_bytes=-32 * GIB)
    (bar,) = bar_lines(plan)
    assert bar.index("]") == pytest.approx(len(bar) * 80 / 112, abs=2)
    assert bar.endswith("+")
