"""Corrected probabilities come out as they are; requests lean on their context's, and then speak for themselves."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.infer.control.acceptance import NUM_FIRST_ROUNDS, Acceptance, Drafts

CHAIN = Drafts(path_probs=(0.8, 0.64, 0.5), depths=(1, 2, 3))
SILENT = Drafts(path_probs=(), depths=())


def accepted(
    acceptance: Acceptance, drafts: Drafts, lens: list[int], *, request_id: str = "a", at: int = 1000
) -> None:
    for accepted_len in lens:
        acceptance.observe_drafts(request_id, at, drafts)
        acceptance.observe_accepted(request_id, at, drafts, len(drafts.path_probs), accepted_len)


def new() -> Acceptance:
    return Acceptance(draft_len=4, tree_budget=6)


def test_the_drafter_is_believed_until_there_is_evidence() -> None:
    acceptance = new()
    assert acceptance.num_requests == 0
    with pytest.raises(ValueError, match="nothing was drafted"):
        acceptance.outlook("a", 1000)
    assert acceptance.gains("a", 1000, CHAIN) == pytest.approx([0.8, 0.64, 0.5])
    acceptance.observe_drafts("a", 1000, CHAIN)
    assert acceptance.is_known
    outlook = acceptance.outlook("b", 100_000)
    assert outlook.gains == pytest.approx(np.array([[0, 0.8, 1.44, 1.94, 1.94, 1.94, 1.94]]))
    assert outlook.weights == pytest.approx([1.0])


@pytest.mark.parametrize("honesty", [0.2, 0.6, 1.0, 1.2])
def test_ratios_by_depth_are_those_of_the_truth(honesty: float) -> None:
    rng = random.Random(5)
    acceptance = new()
    for _ in range(400):
        depth = 0
        while depth < 3 and rng.random() < honesty * 0.8:
            depth += 1
        accepted(acceptance, CHAIN, [depth])
    found = acceptance.ratios("a", 1000)
    # About ten rounds count: the error of one depth's ratio is that of ten draws.
    assert found[0] == pytest.approx(honesty, abs=0.4)
    assert found[2] == pytest.approx(honesty**3 * 0.512 / 0.5, abs=0.45)
    assert found[3] == pytest.approx(found[2], abs=0.35), "never drafted: as the depth above"


def test_a_request_that_drafts_badly_takes_nothing_from_another() -> None:
    acceptance = new()
    accepted(acceptance, CHAIN, [3] * 20, request_id="good")
    accepted(acceptance, CHAIN, [0] * 20, request_id="bad")
    good, bad = (sum(acceptance.gains(name, 1000, CHAIN)) for name in ("good", "bad"))
    assert good > 1.7 and bad < 0.6


def test_a_new_request_begins_with_what_its_context_gave() -> None:
    acceptance = new()
    for name in range(6):
        accepted(acceptance, CHAIN, [3] * 4, request_id=f"short{name}", at=1_000)
        accepted(acceptance, CHAIN, [0] * 4, request_id=f"long{name}", at=100_000)
    short, long = (sum(acceptance.gains("new", context_len, CHAIN)) for context_len in (1_000, 100_000))
    assert short > 1.6 and long < 0.5
    other = sum(acceptance.gains("new", 10_000, CHAIN))
    assert long < other < short, "a context that nobody had: as all"


def test_a_long_request_does_not_speak_for_later_ones() -> None:
    acceptance = new()
    accepted(acceptance, CHAIN, [0] * NUM_FIRST_ROUNDS + [3] * 200, request_id="long")
    assert sum(acceptance.gains("long", 1000, CHAIN)) > 1.7
    assert sum(acceptance.gains("new", 1000, CHAIN)) < 0.9


def test_what_is_forgotten_leaves_its_context() -> None:
    acceptance = new()
    accepted(acceptance, CHAIN, [3] * 5)
    before = acceptance.gains("b", 1000, CHAIN)
    assert acceptance.num_requests == 1
    acceptance.forget("a")
    acceptance.forget("never seen")
    assert acceptance.num_requests == 0
    assert acceptance.gains("b", 1000, CHAIN) == before


def test_paths_that_are_right_as_they_are_teach_nothing() -> None:
    acceptance = new()
    decided = Drafts(path_probs=(1.0, 0.5, 0.0), depths=(1, 2, 3), is_calibrated=True)
    accepted(acceptance, decided, [0] * 30)
    assert acceptance.gains("a", 1000, decided) == [1.0, 0.5, 0.0]
    assert acceptance.ratios("a", 1000) == [1.0] * 4


def test_trees_cut_by_the_end_of_a_request_say_nothing_of_others() -> None:
    acceptance = new()
    acceptance.observe_drafts("a", 1000, CHAIN)
    before = acceptance.outlook("a", 1000)
    acceptance.observe_drafts("a", 1000, Drafts(path_probs=(0.8,), depths=(1,), is_cut=True))
    after = acceptance.outlook("a", 1000)
    assert after.gains == pytest.approx(before.gains) and after.weights == pytest.approx(before.weights)


@given(
    trees=st.lists(
        st.lists(st.floats(0, 1), max_size=6).map(lambda probs: sorted(probs, reverse=True)), min_size=1, max_size=30
    ),
    lens=st.lists(st.integers(0, 4), min_size=30, max_size=30),
)
def test_an_outlook_is_a_distribution_of_rising_gains(trees: list[list[float]], lens: list[int]) -> None:
    acceptance = new()
    for place, (probs, accepted_len) in enumerate(zip(trees, lens, strict=False)):
        drafts = Drafts(path_probs=probs, depths=[min(4, 1 + node) for node in range(len(probs))])
        accepted(acceptance, drafts, [accepted_len], request_id=str(place % 3), at=500 + place)
    outlook = acceptance.outlook("0", 600)
    assert outlook.weights.sum() == pytest.approx(1) and (outlook.weights >= 0).all()
    assert outlook.gains.shape == (len(outlook.weights), 7)
    assert (np.diff(outlook.gains, axis=1) >= 0).all() and (outlook.gains[:, 0] == 0).all()


def test_a_silent_drafter_is_known_to_be_silent() -> None:
    acceptance = new()
    accepted(acceptance, SILENT, [0] * 9)
    outlook = acceptance.outlook("a", 1000)
    assert not outlook.gains.any()
