"""The noise is the same everywhere, belongs to (seed, position) alone, and is Gumbel noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.noise import gumbel_noise

EULER_GAMMA = 0.5772156649
KNOWN = [0.614207, -0.443666, -0.148381, 1.657999]
"""Of seed 7 at position 11."""


def test_known_values() -> None:
    """Written down once: a change here changes every seeded output there ever was."""
    words = np.random.Philox(
        key=np.array([7, 0], dtype=np.uint64), counter=np.array([0, 11, 0, 0], dtype=np.uint64)
    ).random_raw(2)
    bits = [int(word) >> shift & 0xFFFFFFFF for word in words for shift in (0, 32)]
    expected = [-math.log(-math.log1p(-(bit + 0.5) / 2**32)) for bit in bits]
    assert gumbel_noise([(7, 11)], 4)[0].tolist() == pytest.approx(expected, rel=1e-5)
    assert gumbel_noise([(7, 11)], 4)[0].tolist() == pytest.approx(KNOWN, rel=1e-5)


@given(seed=st.integers(-(2**70), 2**70), position=st.integers(0, 2**31), vocab_size=st.integers(1, 300))
@settings(max_examples=100, deadline=None)
def test_repeatable_finite_and_independent_of_the_vocabulary_s_size(
    seed: int, position: int, vocab_size: int
) -> None:
    noise = gumbel_noise([(seed, position)], vocab_size)
    assert noise.shape == (1, vocab_size) and noise.dtype == torch.float32
    assert torch.isfinite(noise).all()
    assert torch.equal(noise, gumbel_noise([(seed, position)], vocab_size))
    assert torch.equal(noise, gumbel_noise([(3, 4), (seed, position)], vocab_size + 5)[1:, :vocab_size])


def test_every_seed_and_position_has_its_own() -> None:
    places = [(seed, position) for seed in range(-3, 20) for position in range(20)]
    assert len({tuple(row) for row in gumbel_noise(places, 8).tolist()}) == len(places)


def test_moments_of_the_gumbel_distribution() -> None:
    noise = gumbel_noise([(1, position) for position in range(20)], 10_000).double()
    assert noise.mean().item() == pytest.approx(EULER_GAMMA, abs=0.015)
    assert noise.var().item() == pytest.approx(math.pi**2 / 6, abs=0.03)
    # Beyond x lie 1 - exp(-exp(-x)) of all.
    for x in (-1.0, 0.0, 2.0, 5.0):
        expected = 1 - math.exp(-math.exp(-x))
        assert (noise > x).double().mean().item() == pytest.approx(expected, abs=0.004)
