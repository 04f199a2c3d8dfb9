from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.bench.arrival import rate, schedule_s
from deepdraft.errors import UsageError


def test_closed_has_no_schedule() -> None:
    assert rate("closed") is None
    assert schedule_s("closed", 5, 0) is None


def test_constant() -> None:
    assert rate("constant:4") == 4.0
    assert schedule_s("constant:4", 5, 0) == (0.0, 0.25, 0.5, 0.75, 1.0)


def test_poisson() -> None:
    times = schedule_s("poisson:20", 4_000, 1)
    assert times is not None
    assert times[0] == 0.0
    gaps = [later - earlier for earlier, later in pairwise(times)]
    mean = sum(gaps) / len(gaps)
    assert mean == pytest.approx(0.05, rel=0.05)
    # Exponential gaps: as large a deviation as a mean, and 63 % below it.
    assert (sum((gap - mean) ** 2 for gap in gaps) / len(gaps)) ** 0.5 == pytest.approx(mean, rel=0.1)
    assert sum(gap < mean for gap in gaps) / len(gaps) == pytest.approx(0.632, abs=0.03)


@given(st.sampled_from(["poisson:3", "constant:3"]), st.integers(0, 50), st.integers())
def test_schedules_never_go_back_and_follow_from_the_seed(arrival, num_requests, seed) -> None:
    times = schedule_s(arrival, num_requests, seed)
    assert times is not None
    assert len(times) == num_requests
    assert list(times) == sorted(times)
    assert times == schedule_s(arrival, num_requests, seed)


def test_another_seed_is_another_schedule() -> None:
    assert schedule_s("poisson:3", 5, 0) != schedule_s("poisson:3", 5, 1)


@pytest.mark.parametrize(
    "arrival",
    ["", "open", "poisson", "poisson:", "poisson:x", "constant:0", "constant:-2", "poisson:inf", "poisson:nan"],
)
def test_anything_else_is_refused(arrival) -> None:
    with pytest.raises(UsageError, match="not an arrival") as caught:
        rate(arrival)
    assert "poisson:RATE" in (caught.value.hint or "")
