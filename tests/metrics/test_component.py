"""Shares of ceilings and ratios to peers are of one repeat, and what isn't known is not made up."""

from __future__ import annotations

import pytest
from component_cases import case
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.metrics.component import (
    ceiling,
    ceiling_name,
    parts_s,
    peer_ratios,
    per_round,
    seconds_of,
    shares_frac,
)
from deepdraft.records.component import ComponentCase, ComponentRepeat

POSITIVE = st.floats(1e-9, 1e9)


def test_the_longest_of_the_ceilings_binds() -> None:
    found = case((3.0,))  # copying takes 8 / 8 = 1 s, multiplying 3 / 2 = 1.5 s
    least = ceiling(found, found.repeats[0])
    assert least is not None
    assert (least.name, least.seconds) == ("matmul", 1.5)
    assert shares_frac(found) == (0.5,)


def test_a_ceiling_whose_rate_was_not_measured_does_not_bind() -> None:
    found = case((2.0,), rates={"copy": 8.0})
    assert ceiling_name(found) == "copy"
    assert shares_frac(found) == (0.5,)


def test_without_work_there_is_no_ceiling() -> None:
    found = case(work={})
    assert ceiling_name(found) is None
    assert shares_frac(found) == ()


def test_the_ceiling_of_most_repeats_is_named() -> None:
    repeats = tuple(ComponentRepeat(seconds=1.0, rates={"copy": copy, "matmul": 1.0}) for copy in (0.5, 2.0, 0.5))
    assert ceiling_name(ComponentCase(name="x", work={"copy": 1.0, "matmul": 1.0}, repeats=repeats)) == "copy"


def test_a_peer_that_was_there_only_once_has_one_ratio() -> None:
    repeats = (ComponentRepeat(seconds=2.0, peers_s={"torch": 6.0}), ComponentRepeat(seconds=2.0))
    assert peer_ratios(ComponentCase(name="x", repeats=repeats)) == {"torch": (3.0,)}


def test_rounds_of_all_repeats_count_together() -> None:
    repeats = (
        ComponentRepeat(seconds=1.0, counts={"rounds": 1.0, "tokens": 4.0}),
        ComponentRepeat(seconds=1.0, counts={"rounds": 3.0, "tokens": 4.0}),
    )
    found = ComponentCase(name="x", repeats=repeats)
    assert per_round(found, "tokens") == 2.0
    assert per_round(found, "rows") is None
    assert per_round(case(), "tokens") is None


def test_parts_have_their_own_range() -> None:
    found = parts_s(case((1.0, 2.0), parts_s={"draft": 0.5}))
    assert (found["draft"].median, found["draft"].num_samples) == (0.5, 2)


def test_a_case_without_repeats_has_no_time() -> None:
    with pytest.raises(ValueError, match="without repeats"):
        seconds_of(ComponentCase(name="x", repeats=()))


@given(st.lists(POSITIVE, min_size=1, max_size=6), POSITIVE, POSITIVE)
def test_a_machine_that_changes_changes_no_share(seconds: list[float], factor: float, work: float) -> None:
    steady = ComponentCase(
        name="x",
        work={"read": work},
        repeats=tuple(ComponentRepeat(seconds=each, rates={"read": work / each}) for each in seconds),
    )
    slowed = ComponentCase(
        name="x",
        work={"read": work},
        repeats=tuple(
            ComponentRepeat(seconds=each * factor, rates={"read": work / (each * factor)}) for each in seconds
        ),
    )
    assert shares_frac(slowed) == pytest.approx(shares_frac(steady))
    assert shares_frac(steady) == pytest.approx((1.0,) * len(seconds))
