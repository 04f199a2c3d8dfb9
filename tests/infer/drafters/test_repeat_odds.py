from __future__ import annotations

import math
import random

import pytest

from deepdraft.infer.drafters.repeat_odds import MAX_MATCHED_LEN, RepeatOdds


def test_at_first_a_longer_match_is_surer() -> None:
    probs = [RepeatOdds().prob(length) for length in range(1, MAX_MATCHED_LEN + 10)]
    assert probs == sorted(probs) and probs[:3] == [1 / 3, 2 / 4, 3 / 5] and probs[-1] == 33 / 35


def test_counts_win_over_the_assumption() -> None:
    """To within what fifty counts tell."""
    drawn, odds = random.Random(1), RepeatOdds()
    truth = {2: 0.1, 3: 0.9, 20: 0.5}
    for _ in range(300):
        for length, prob in truth.items():
            odds.observe(length, [drawn.random() < prob])
    for length, prob in truth.items():
        assert odds.prob(length) == pytest.approx(prob, abs=3 * math.sqrt(prob * (1 - prob) / 50))
    assert odds.prob(4) == 4 / 6, "lengths that were not seen stay as they were assumed"


def test_a_right_token_makes_the_match_one_longer() -> None:
    odds = RepeatOdds()
    for _ in range(500):
        odds.observe(2, [True, True, False])
    assert odds.prob(2) > 0.9 < odds.prob(3) and odds.prob(4) < 0.1
    two, three, four = odds.log_probs(2, 3)
    assert [math.exp(each) for each in (two, three, four)] == pytest.approx([odds.prob(n) for n in (2, 3, 4)])


def test_drafts_beyond_the_longest_match_that_is_told_apart() -> None:
    odds = RepeatOdds()
    found = odds.log_probs(MAX_MATCHED_LEN - 1, 5)
    assert len(found) == 5 and found[1:] == [math.log(odds.prob(MAX_MATCHED_LEN))] * 4
    assert odds.log_probs(MAX_MATCHED_LEN + 5, 2) == found[-2:]


def test_a_text_leans_on_all_and_counts_for_all() -> None:
    of_all = RepeatOdds()
    first, second = RepeatOdds(of_all), RepeatOdds(of_all)
    for _ in range(100):
        first.observe(5, [False])
    assert first.prob(5) < second.prob(5) == of_all.prob(5) < 0.1
    for _ in range(3):
        second.observe(5, [True])
    assert second.prob(5) > of_all.prob(5), "its own counts weigh more to itself"


def test_nothing_is_ever_certain() -> None:
    odds = RepeatOdds()
    for _ in range(10_000):
        odds.observe(33, [True])
        odds.observe(2, [False])
    assert odds.prob(2) > 0 and odds.prob(33) < 1
