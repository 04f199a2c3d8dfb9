from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.simulate.physics import Chance, prefill_s, step_s
from deepdraft.simulate.spec import Physics

LAW = Physics(prefill_a_s=0.05, prefill_b_s=2e-4, prefill_c_s=3e-9, step_d_s=8e-3, step_e_s=1e-7, interference=0.25)


@given(st.integers(1, 200_000))
def test_cold_prefill_is_the_stated_law(num_tokens: int) -> None:
    expected = 0.05 + 2e-4 * num_tokens + 3e-9 * num_tokens**2
    assert prefill_s(LAW, num_uncached=num_tokens) == pytest.approx(expected)


@given(st.integers(1, 100_000), st.integers(0, 100_000))
def test_two_chunks_cost_the_attention_of_one(first: int, second: int) -> None:
    quadratic = Physics(prefill_a_s=0, prefill_c_s=1e-9)
    whole = prefill_s(quadratic, num_uncached=first + second)
    parts = prefill_s(quadratic, num_uncached=first)
    parts += prefill_s(quadratic, num_uncached=second, num_cached=first)
    assert parts == pytest.approx(whole)


@given(st.integers(1, 200_000))
def test_steps_are_linear_in_context(context_len: int) -> None:
    assert step_s(LAW, context_len=context_len) == pytest.approx(8e-3 + 1e-7 * context_len)


def test_other_running_requests_slow_steps() -> None:
    alone = step_s(LAW, context_len=1000)
    assert step_s(LAW, context_len=1000, num_running=5) == pytest.approx(2 * alone)


@given(st.integers(1, 6), st.integers(0, 1000), st.booleans())
def test_committed_is_accepted_plus_one(num_left: int, ordinal: int, past_end: bool) -> None:
    physics = Physics(committed_len_probs=(0.1, 0.2, 0.3, 0.4))
    draw = Chance(physics, ordinal).draw(num_left, accepted_past_end=past_end)
    assert 1 <= draw.committed_len <= num_left
    assert draw.draft_len == 3
    if past_end:
        assert draw.committed_len == min(num_left, draw.accepted_len + 1)
    else:
        assert draw.committed_len == draw.accepted_len + 1


def test_the_mean_of_many_draws() -> None:
    physics = Physics(committed_len_probs=(0.2, 0.3, 0.5))
    chance = Chance(physics, 1)
    drawn = [chance.draw(1000).committed_len for _ in range(20_000)]
    assert statistics.mean(drawn) == pytest.approx(physics.mean_committed_len, rel=0.02)


def test_a_pattern_is_followed() -> None:
    chance = Chance(Physics(committed_len_pattern=(1, 4, 2, 5)), 1)
    assert [chance.draw(100).committed_len for _ in range(8)] == [1, 4, 2, 5] * 2


def test_the_same_seed_draws_the_same() -> None:
    physics = Physics(committed_len_probs=(0.5, 0.5), noise_frac=0.1, seed=7)
    first, second = Chance(physics, 3), Chance(physics, 3)
    assert [first.noise() for _ in range(20)] == [second.noise() for _ in range(20)]
    assert [first.draw(99) for _ in range(20)] == [second.draw(99) for _ in range(20)]


def test_noise_has_the_stated_width() -> None:
    chance = Chance(Physics(noise_frac=0.1), 1)
    factors = [chance.noise() for _ in range(5000)]
    assert statistics.stdev(factors) == pytest.approx(0.1, rel=0.1)
    assert statistics.mean(factors) == pytest.approx(1.0, abs=0.01)
    assert Chance(Physics(), 1).noise() == 1.0
