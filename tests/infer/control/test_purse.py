"""What may be lost by finding out is a share of decoding time, whoever spends it."""

from __future__ import annotations

import random

import pytest

from deepdraft.infer.control.purse import PROBE_COST_FRAC, Purse


def test_a_probe_waits_until_it_is_saved_for() -> None:
    purse, num_steps = Purse(), 0
    while not purse.can_afford("a", 1000, 0.010):
        purse.earn("a", 1000, 0.005)
        num_steps += 1
    assert num_steps == pytest.approx(0.010 / (PROBE_COST_FRAC * 0.005), abs=1)
    purse.spend("a", 1000, 0.010)
    assert not purse.can_afford("a", 1000, 0.010)
    assert purse.can_afford("a", 1000, -0.001), "what wins is free, unless there are debts"
    purse.spend("a", 1000, 1.0)
    assert not purse.can_afford("a", 1000, -0.001)


def test_all_that_is_lost_is_a_share_of_the_time() -> None:
    """Up to the last probe of each request, whatever probes turn out to cost."""
    rng, purse, spent_s, decoded_s = random.Random(2), Purse(), 0.0, 0.0
    for request in range(40):
        for _ in range(rng.randint(1, 600)):
            decoded_s += 0.005
            purse.earn(str(request), 1000, 0.005)
            if purse.can_afford(str(request), 1000, 0.010):
                loss_s = rng.uniform(0.0, 0.020)
                purse.spend(str(request), 1000, loss_s)
                spent_s += loss_s
        purse.close(str(request))
    assert 0.5 * PROBE_COST_FRAC * decoded_s < spent_s <= PROBE_COST_FRAC * decoded_s + 0.010


def test_savings_and_debts_are_the_next_requests_of_the_same_context() -> None:
    purse = Purse()
    purse.earn("a", 1000, 1.0)
    purse.spend("b", 100_000, 0.3)
    for name in "ab":
        purse.close(name)
    purse.close("never seen")
    assert purse.num_requests == 0
    assert purse.credit_s("c", 1000) == pytest.approx(PROBE_COST_FRAC)
    assert purse.credit_s("d", 1000) == 0, "it was taken over once"
    assert purse.credit_s("e", 100_000) == pytest.approx(-0.3)
    assert purse.credit_s("f", 10_000) == 0


def test_what_is_never_spent_is_not_hoarded() -> None:
    purse = Purse()
    purse.can_afford("a", 1000, 0.010)
    for _ in range(100_000):
        purse.earn("a", 1000, 0.005)
    assert purse.credit_s("a", 1000) == pytest.approx(0.020)
