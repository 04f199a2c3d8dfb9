"""The cost-aware stop against trying everything."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.infer.control.acceptance import Outlook
from deepdraft.infer.control.costs import RowCosts
from deepdraft.infer.control.worth import cut, rows_s, worth

COSTS = RowCosts((1.0, 2.0, 5.0, 17.0), (0.005, 0.006, 0.008, 0.020))
FALLING = st.lists(st.floats(0.01, 1), max_size=5).map(lambda gains: sorted(gains, reverse=True))


def value(gains: list[list[float]], nodes: tuple[int, ...], rate: float) -> float:
    won = sum(sum(own[:number]) for own, number in zip(gains, nodes, strict=True))
    return won - rate * (COSTS.of(1 + sum(nodes)) - COSTS.plain_s)


@given(gains=st.lists(FALLING, max_size=3), rate=st.floats(10, 2000))
def test_the_cut_is_the_best_of_all_prefixes(gains: list[list[float]], rate: float) -> None:
    nodes = cut(gains, COSTS, rate)
    best = max(value(gains, each, rate) for each in product(*(range(len(own) + 1) for own in gains)))
    assert value(gains, nodes, rate) == pytest.approx(best, abs=1e-9)


def test_a_node_is_not_taken_before_those_ahead_of_it() -> None:
    """Spine first: likely nodes may come after unlikely ones."""
    assert cut([[0.9, 0.05, 0.01, 0.8]], RowCosts((1.0, 9.0), (0.005, 0.009)), 200.0) == (4,)
    assert cut([[0.9, 0.05, 0.01, 0.02]], RowCosts((1.0, 9.0), (0.005, 0.009)), 200.0) == (1,)


@given(gains=st.lists(FALLING, min_size=1, max_size=4), rate=st.floats(10, 2000))
def test_a_higher_rate_takes_no_more(gains: list[list[float]], rate: float) -> None:
    assert sum(cut(gains, COSTS, 2 * rate)) <= sum(cut(gains, COSTS, rate))


def test_nothing_to_cut() -> None:
    assert cut([], COSTS, 100.0) == () and cut([[], []], COSTS, 100.0) == (0, 0)


def test_worth_is_a_mean_over_trees_each_cut_for_itself() -> None:
    """Nine trees in ten are empty, the tenth is right for sure: no row is paid for the nine."""
    gains = np.zeros((10, 5))
    gains[0] = [0, 1, 2, 3, 4]
    outlook = Outlook(gains, np.full(10, 0.1))
    seconds = rows_s(COSTS, 4)
    found = worth(outlook, seconds, 200.0)
    assert (found.gain, found.num_nodes) == pytest.approx((0.4, 0.4))
    assert found.rows_s == pytest.approx(0.1 * (COSTS.of(5) - COSTS.plain_s))
    forced = worth(outlook, seconds, 200.0, min_nodes=1)
    assert forced.gain == pytest.approx(0.4) and forced.num_nodes == pytest.approx(1.3)


def test_rows_among_others_cost_their_part_of_all() -> None:
    alone, among = rows_s(COSTS, 4), rows_s(COSTS, 4, 10)
    assert alone.tolist() == pytest.approx([0, 0.001, 0.003 - 4 / 3 * 0.001, 0.003 - 2 / 3 * 0.001, 0.003])
    assert among == pytest.approx(np.arange(5) * (COSTS.of(13) - COSTS.plain_s) / 12)
