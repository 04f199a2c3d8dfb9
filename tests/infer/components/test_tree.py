"""Trees of the cases: the plain builder and the product's are the same tree, and a builder that isn't is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from deepdraft.errors import DeepdraftError
from deepdraft.infer.components import tree
from deepdraft.infer.components.plain_tree import plain_marginals, plain_tree
from deepdraft.infer.components.tree import TreeSettings, tree_cases, zipf_logits
from deepdraft.infer.components.turns import Timing, Watch
from deepdraft.infer.tree.build import build_tree
from deepdraft.infer.tree.marginals import Marginals

SMALL = {"small": (3, 50)}


@given(
    st.integers(0, 40),
    st.lists(
        st.lists(st.floats(-8, -0.015625, width=32), min_size=3, max_size=3, unique=True), min_size=1, max_size=4
    ),
)
def test_the_plain_builder_gives_the_same_tree(budget: int, rows: list[list[float]]) -> None:
    log_probs = [sorted(row, reverse=True) for row in rows]
    token_ids = [[10 * depth + rank for rank in range(3)] for depth in range(len(rows))]
    candidates = Marginals(np.array(log_probs, dtype=np.float32), np.array(token_ids, dtype=np.int64))
    expected = build_tree(7, candidates, budget=budget)
    assert plain_tree(7, log_probs, token_ids, budget) == (expected.token_ids, expected.parents)


def test_plain_marginals_are_log_probabilities() -> None:
    log_probs, token_ids = plain_marginals(torch.tensor([[0.0, 2.0, 1.0]]), 2)
    assert token_ids == [[1, 2]]
    assert log_probs[0] == pytest.approx(torch.tensor([0.0, 2.0, 1.0]).log_softmax(0)[[1, 2]].tolist())


def test_logits_are_the_same_at_each_call_and_sharpest_first() -> None:
    logits = zipf_logits(3, 50)
    assert torch.equal(logits, zipf_logits(3, 50))
    best = logits.softmax(-1).amax(-1)
    assert best[0] > best[1] > best[2]


def test_whole_and_build_of_every_budget(brief: Timing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "SIZES", SMALL)
    cases = list(tree_cases(TreeSettings(sizes=("small",), budgets=(4, 200), timing=brief), Watch()))
    assert [case.name for case in cases] == [
        "3 x 50, budget 4, whole",
        "3 x 50, budget 4, build",
        "3 x 50, budget 200, whole",
        "3 x 50, budget 200, build",
    ]
    whole, build = cases[2], cases[3]
    assert (whole.facts["top_k"], whole.facts["num_nodes"]) == (50, 200)
    assert whole.work == {"read": 3 * 50 * 4.0}
    assert set(whole.repeats[0].peers_s) == {"topk alone", "plain"}
    assert (build.work, set(build.repeats[0].peers_s)) == ({}, {"plain"})


def published(logits: Tensor, budget: int) -> tuple[Any, ...]:
    """A builder with the published one's signature."""
    tokens, parents = plain_tree(0, *plain_marginals(logits, budget), budget)
    depths = [0]
    for parent in parents[1:]:
        depths.append(depths[parent] + 1)
    return torch.tensor(tokens[1:]), torch.tensor(depths[1:]), list(parents), [], None, {}


def test_another_builder_is_the_peer_of_a_third_case(brief: Timing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "SIZES", SMALL)
    settings = TreeSettings(sizes=("small",), budgets=(4,), timing=brief)
    cases = list(tree_cases(settings, Watch(), published=published))
    assert cases[-1].name == "3 x 50, budget 4, with mask"
    assert set(cases[-1].repeats[0].peers_s) == {"published"}


def test_another_tree_is_told(brief: Timing, monkeypatch: pytest.MonkeyPatch) -> None:
    def chain(logits: Tensor, budget: int) -> tuple[Any, ...]:
        tokens, depths, _, *rest = published(logits, budget)
        return (tokens, depths, list(range(-1, len(tokens))), *rest)

    monkeypatch.setattr(tree, "SIZES", SMALL)
    settings = TreeSettings(sizes=("small",), budgets=(8,), timing=brief)
    with pytest.raises(DeepdraftError, match="differ in"):
        list(tree_cases(settings, Watch(), published=chain))
