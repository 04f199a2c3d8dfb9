import random
import statistics

import pytest
from synthetic import LENGTHS, curve

from deepdraft.stats.noise import median_factor, noise_of
from deepdraft.stats.observed import Observed


def law(length: float) -> float:
    return 0.008 + 5e-7 * length


def test_the_size_of_the_noise_is_found() -> None:
    sizes = [noise_of(curve(law, seed=seed, noise_frac=0.03)).sd_frac for seed in range(60)]
    assert statistics.fmean(size for size in sizes if size is not None) == pytest.approx(0.03, rel=0.1)


def test_single_values_tell_no_noise() -> None:
    noise = noise_of(curve(law, seed=0, num_repeats=1))
    assert (noise.sd_frac, noise.num_free, noise.doubts) == (None, 0, ())


@pytest.mark.parametrize("num_values", [2, 3, 4, 5, 8])
def test_the_medians_error_is_what_it_is_said_to_be(num_values: int) -> None:
    chance = random.Random(1)
    medians = [statistics.median(chance.gauss(0, 1) for _ in range(num_values)) for _ in range(8_000)]
    assert statistics.pstdev(medians) * num_values**0.5 == pytest.approx(median_factor(num_values), rel=0.03)


def test_an_outlier_is_named_and_leaves_the_noise_alone() -> None:
    noise = noise_of(curve(law, seed=3, outlier_at=32_000))
    assert [outlier.x for outlier in noise.outliers] == [32_000]
    assert noise.sd_frac is not None and noise.sd_frac < 0.04
    assert "outlier" in noise.doubts[0] and "32,000" in noise.doubts[0]


def test_clean_curves_are_rarely_called_outliers() -> None:
    assert sum(bool(noise_of(curve(law, seed=seed)).outliers) for seed in range(100)) <= 12  # 5 expected


def test_of_two_repeats_neither_is_accused() -> None:
    noise = noise_of(curve(law, seed=5, num_repeats=2, outlier_at=64_000))
    assert noise.outliers[0].index is None
    assert "can't be told" in noise.doubts[0]


def test_rounding_makes_no_outlier() -> None:
    values = [(0.009, 0.009, 0.009)] * 5 + [(0.009, 0.010, 0.009)]
    observed = [
        Observed(x=length, values=each, half_width=0.0005) for length, each in zip(LENGTHS, values, strict=True)
    ]
    assert noise_of(observed).outliers == ()


def test_a_warm_up_is_named() -> None:
    observed = [
        Observed(x=one.x, values=(one.values[0] * 1.3, *one.values[1:])) for one in curve(law, seed=7, num_repeats=4)
    ]
    assert any("first repeat" in doubt and "warm-up" in doubt for doubt in noise_of(observed).doubts)


def test_a_drift_is_named_and_is_no_warm_up() -> None:
    observed = [
        Observed(x=one.x, values=tuple(value * (1 + 0.08 * index) for index, value in enumerate(one.values)))
        for one in curve(law, seed=8, num_repeats=6, noise_frac=0.01)
    ]
    doubts = noise_of(observed).doubts
    assert any("drift" in doubt for doubt in doubts)
    assert not any("warm-up" in doubt for doubt in doubts)


def test_a_steady_curve_has_no_trend() -> None:
    trends = [
        doubt
        for seed in range(60)
        for doubt in noise_of(curve(law, seed=seed, num_repeats=4)).doubts
        if "outlier" not in doubt
    ]
    assert len(trends) <= 3
