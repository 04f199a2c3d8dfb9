"""Costs come out as they are, from few and noisy observations, between and beyond what was seen."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.infer.control.costs import WINDOW, Costs, RowCosts


def learned(law: Callable[[int, int], float], rows: list[int], contexts: list[int], *, times: int = 3) -> Costs:
    """Of one request: what `law(num_rows, kv_tokens)` says, each so often."""
    costs = Costs()
    for kv_tokens in contexts:
        for num_rows in rows:
            for _ in range(times):
                costs.observe_forward(1, num_rows, kv_tokens, law(num_rows, kv_tokens))
    return costs


def law(num_rows: int, kv_tokens: int) -> float:
    return (0.004 + 1e-7 * kv_tokens) * (1 + 0.2 * (num_rows - 1))


def test_nothing_is_known_before_anything_was_seen() -> None:
    costs = Costs()
    assert costs.forward(1, 1000) is None and costs.forward_s(1, 1, 1000) is None
    assert costs.draft_s(1, 1000) is None and costs.num_plain(1, 1000) == 0 and costs.num_drafts == 0
    costs.observe_forward(1, 17, 1000, 0.02)
    assert costs.forward(1, 1000) is None, "of plain steps nothing is known yet"


@given(kv_tokens=st.integers(1000, 120_000), num_rows=st.integers(1, 25))
def test_a_linear_law_is_met_between_and_a_little_beyond(kv_tokens: int, num_rows: int) -> None:
    costs = learned(law, [1, 2, 5, 17], [1_000, 4_000, 16_000, 64_000])
    assert costs.forward_s(1, num_rows, kv_tokens) == pytest.approx(law(num_rows, kv_tokens), rel=0.02)


def test_a_width_seen_at_one_context_keeps_its_ratio_to_plain_steps() -> None:
    costs = learned(law, [1], [1_000, 2_000, 4_000, 64_000])
    costs.observe_forward(1, 17, 1_000, law(17, 1_000))
    assert costs.forward_s(1, 17, 64_000) == pytest.approx(law(17, 64_000), rel=0.02)


def test_another_number_of_requests_lends_its_ratio() -> None:
    costs = learned(law, [1, 17], [4_000])
    for _ in range(3):
        costs.observe_forward(4, 4, 16_000, 0.010)
    found = costs.forward(4, 16_000)
    assert found is not None and found.plain_s == 0.010
    assert found.of(68) == pytest.approx(0.010 * law(17, 4_000) / law(1, 4_000))
    costs.observe_forward(4, 40, 16_000, 0.030)
    found = costs.forward(4, 16_000)
    assert found is not None and found.rows == (4.0, 40.0), "what was seen counts, nothing is borrowed"


def test_medians_drop_outliers_and_follow_changes() -> None:
    rng = random.Random(1)
    costs = Costs()
    for _ in range(50):
        outlier = 5.0 if rng.random() < 0.1 else 1.0
        costs.observe_forward(1, 1, 1_000, 0.005 * math.exp(rng.gauss(0, 0.05)) * outlier)
    assert costs.forward_s(1, 1, 1_000) == pytest.approx(0.005, rel=0.1)
    for _ in range(WINDOW // 2 + 1):
        costs.observe_forward(1, 1, 1_000, 0.010)
    assert costs.forward_s(1, 1, 1_000) == pytest.approx(0.010)


def test_a_first_observation_that_warmed_something_up_is_forgotten_at_once() -> None:
    costs = Costs()
    for seconds in (0.4, 0.005):
        costs.observe_draft(1, 1_000, seconds)
    assert costs.draft_s(1, 1_000) == 0.005 and costs.num_drafts == 2


def test_what_was_seen_on_a_busy_machine_is_known_on_a_free_one() -> None:
    """Everything takes a third: plain steps say so, and what isn't tried meanwhile is taken to do likewise."""
    costs = learned(law, [1, 17], [4_000])
    costs.observe_draft(1, 4_000, 0.006)
    for _ in range(WINDOW):
        costs.observe_forward(1, 1, 4_000, law(1, 4_000) / 3)
    assert costs.forward_s(1, 17, 4_000) == pytest.approx(law(17, 4_000) / 3)
    assert costs.draft_s(1, 4_000) == pytest.approx(0.002)


def test_drafting_for_several() -> None:
    costs = Costs()
    for number in (1, 2, 8):
        costs.observe_draft(number, 1_000 * number, 0.002 + 0.001 * number)
    assert [costs.draft_s(number, 1_000 * number) for number in (1, 2, 5, 8)] == pytest.approx(
        [0.003, 0.004, 0.007, 0.010]
    )


@given(
    seconds=st.lists(st.floats(1e-4, 1e-1), min_size=1, max_size=6),
    num_nodes=st.integers(0, 80),
)
def test_row_costs_never_fall_and_agree_with_themselves(seconds: list[float], num_nodes: int) -> None:
    costs = Costs()
    for nodes, spent in zip((0, 1, 3, 7, 16, 40), seconds, strict=False):
        costs.observe_forward(2, 2 + nodes, 1_000, spent)
    found = costs.forward(2, 1_000)
    assert found is not None and found.knows_drafts == (len(seconds) > 1)
    several = found.up_to(num_nodes)
    assert len(several) == num_nodes + 1 and (np.diff(several) >= -1e-12).all()
    assert several == pytest.approx([found.of(2 + nodes) for nodes in range(num_nodes + 1)])


def test_it_stays_small() -> None:
    """Cells are bounded by powers of two, whatever is served."""
    rng = random.Random(3)
    costs = Costs()
    for _ in range(20_000):
        num_requests = rng.randint(1, 16)
        costs.observe_forward(num_requests, num_requests + rng.randint(0, 64), rng.randint(1, 1 << 20), 0.01)
    num_cells = sum(len(cells) for table in costs._passes.values() for cells in table._cells.values())
    assert num_cells <= 5 * 9 * 21


def test_one_known_width_is_a_flat_law() -> None:
    alone = RowCosts((1.0,), (0.005,))
    assert alone.of(10) == alone.plain_s == 0.005 and alone.up_to(3).tolist() == [0.005] * 4
