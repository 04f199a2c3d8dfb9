import random
from collections.abc import Callable

import pytest

from deepdraft.stats.crossover import Crossover, NoCrossover, RatioAt, crossover
from deepdraft.stats.interval import CannotTell
from deepdraft.stats.observed import Observed
from deepdraft.stats.ratio import paired_ratio, unpaired_ratio

TRUTH = 70_000
DOUBLING = (8_000, 16_000, 32_000, 64_000, 128_000)
SPARSE = (1_000, 4_000, 16_000, 64_000, 250_000)


def plain(length: float) -> float:
    return 0.020 + 1e-7 * length


def drafted(length: float) -> float:
    return 0.006 + 3e-7 * length


def ratios(
    lengths: tuple[int, ...],
    *,
    seed: int = 0,
    noise_frac: float = 0.02,
    num_repeats: int = 3,
    after: Callable[[float], float] = drafted,
) -> list[RatioAt]:
    chance = random.Random(seed)

    def measured(law: Callable[[float], float], length: float) -> list[float]:
        return [law(length) * (1 + noise_frac * chance.gauss(0, 1)) for _ in range(num_repeats)]

    return [
        RatioAt(x=length, ratio=paired_ratio(measured(plain, length), measured(after, length))) for length in lengths
    ]


@pytest.mark.parametrize("lengths", [DOUBLING, SPARSE], ids=["doubling", "sparse"])
@pytest.mark.parametrize("noise_frac", [0.002, 0.02])
def test_the_interval_covers_the_true_crossover(lengths: tuple[int, ...], noise_frac: float) -> None:
    num_covered = 0
    for seed in range(100):
        found = crossover(ratios(lengths, seed=seed, noise_frac=noise_frac))
        if isinstance(found, Crossover):
            assert found.is_rising
            num_covered += found.len.interval is not None and found.len.interval.has(TRUTH)
    assert num_covered >= 90


def test_the_interval_says_something() -> None:
    found = crossover(ratios(DOUBLING, noise_frac=0.002))
    assert isinstance(found, Crossover)
    assert found.len.value == pytest.approx(TRUTH, rel=0.05)
    assert found.len.interval is not None
    assert found.len.interval.high / found.len.interval.low < 1.3


def test_a_ratio_that_falls_is_not_rising() -> None:
    turned = [
        RatioAt(
            x=point.x, ratio=paired_ratio([1.0, 1.01, 0.99], [value / point.ratio.value for value in (1, 1.01, 0.99)])
        )
        for point in ratios(DOUBLING, noise_frac=0.002)
    ]
    found = crossover(turned)
    assert isinstance(found, Crossover)
    assert not found.is_rising


@pytest.mark.parametrize(("factor", "side"), [(0.5, "below"), (2.0, "above")])
def test_no_crossing_up_to_the_longest(factor: float, side: str) -> None:
    found = crossover(ratios(DOUBLING, after=lambda length: factor * plain(length)))
    assert found == NoCrossover(lowest=8_000, up_to=128_000, side=side)  # type: ignore[arg-type]


def test_equal_configurations_cannot_tell() -> None:
    found = crossover(ratios(DOUBLING, after=plain, noise_frac=0.05))
    assert isinstance(found, CannotTell)
    assert "repeats" in found.would_tell


def test_points_too_far_apart_locate_nothing_and_propose() -> None:
    short = unpaired_ratio(
        Observed(x=1_000, values=(71.0,), half_width=0.5), Observed(x=1_000, values=(218.0,), half_width=0.5)
    )
    long = unpaired_ratio(
        Observed(x=185_000, values=(71.0,), half_width=0.5), Observed(x=185_000, values=(16.0,), half_width=0.05)
    )
    found = crossover([RatioAt(x=1_000, ratio=short), RatioAt(x=185_000, ratio=long)])
    assert isinstance(found, CannotTell)
    assert found.between == (1_000, 185_000)
    assert len(found.propose) >= 2
    assert all(1_000 < length < 185_000 for length in found.propose)


def test_two_close_points_bracket_it_and_no_more() -> None:
    found = crossover(ratios((40_000, 100_000), noise_frac=0.002))
    assert isinstance(found, Crossover)
    assert found.len.interval is not None
    assert found.len.interval.low < 42_000 and found.len.interval.high > 95_000


def test_a_ratio_that_passes_one_twice_is_not_located() -> None:
    points = [
        RatioAt(
            x=1_000 * 2**step, ratio=paired_ratio([1.0, 1.01, 0.99], [value * factor for value in (1.0, 1.01, 0.99)])
        )
        for step, factor in enumerate((0.5, 2.0, 0.5))
    ]
    found = crossover(points)
    assert isinstance(found, CannotTell)
    assert "more than once" in found.reason


def test_ratios_without_intervals_cannot_tell() -> None:
    found = crossover([RatioAt(x=1_000, ratio=paired_ratio([1.0], [2.0]))])
    assert isinstance(found, CannotTell)
