from collections import Counter
from typing import Any

import pytest
from synthetic import curve, deployment_tpot

from deepdraft.stats.interval import CannotTell
from deepdraft.stats.knee import Knee, NoKnee, knee
from deepdraft.stats.observed import Observed

DENSE = tuple(1_000 * 2 ** (step / 1.2) for step in range(10))


def line(length: float) -> float:
    return 0.008 + 5e-7 * length


def curved(length: float) -> float:
    return line(length) + 1e-11 * length**2


def bent(length: float) -> float:
    return line(length) + (5e-7 * (length - 60_000) if length > 60_000 else 0)


def test_the_published_table_has_its_knee_before_185k() -> None:
    found = knee(deployment_tpot())
    assert isinstance(found, Knee)
    assert found.between == (128_000, 185_000)
    assert found.after.value == pytest.approx(12.5e-6, rel=0.01)
    assert found.ratio.value == pytest.approx(2.33, rel=0.01)
    assert found.ratio.interval is not None and found.ratio.interval.low == pytest.approx(1.84, rel=0.01)


def test_up_to_128k_the_published_table_has_none() -> None:
    found = knee(deployment_tpot()[:5])
    assert isinstance(found, NoKnee)
    assert found.up_to == 128_000
    assert found.largest_ratio < 1.3


@pytest.mark.parametrize(
    ("law", "sweep", "answer", "least"),
    [
        (line, {}, NoKnee, 95),
        (line, {"lengths": DENSE}, NoKnee, 95),
        (bent, {"noise_frac": 0.01}, Knee, 85),
        (bent, {"lengths": DENSE}, Knee, 95),
        (bent, {"lengths": DENSE, "num_repeats": 1}, Knee, 90),
    ],
    ids=["line", "dense line", "bend", "dense bend", "dense bend of single values"],
)
def test_bends_are_found_and_lines_are_left_alone(law: Any, sweep: dict[str, Any], answer: type, least: int) -> None:
    answers = [knee(curve(law, seed=seed, **sweep)) for seed in range(100)]
    assert sum(isinstance(found, answer) for found in answers) >= least


@pytest.mark.parametrize(
    "sweep", [{}, {"lengths": DENSE}, {"noise_frac": 0.005}, {"num_repeats": 2, "outlier_at": 128_000}]
)
def test_a_smooth_curve_or_an_outlier_is_no_knee(sweep: dict[str, Any]) -> None:
    law = line if "outlier_at" in sweep else curved
    kinds = Counter(type(knee(curve(law, seed=seed, **sweep))) for seed in range(100))
    assert kinds[Knee] <= 4


def test_a_dense_bend_is_located() -> None:
    found = [knee(curve(bent, seed=seed, lengths=DENSE)) for seed in range(60)]
    knees = [one for one in found if isinstance(one, Knee)]
    assert sum(one.between[0] <= 60_000 <= one.between[1] for one in knees) >= 0.85 * len(knees)


def test_a_slope_that_falls_is_a_knee_too() -> None:
    found = knee(curve(lambda n: 0.002 + 1e-6 * min(n, 32_000), seed=0, noise_frac=0.01))
    assert isinstance(found, Knee)
    assert found.after.value < found.before.value


def test_three_points_cannot_tell_and_say_which_would() -> None:
    found = knee(curve(bent, seed=0, lengths=(1_000, 64_000, 128_000)))
    assert isinstance(found, CannotTell)
    assert found.propose == (96_000, 192_000)


def test_without_repeats_or_rounding_few_points_cannot_tell() -> None:
    found = knee([Observed(x=x, values=(bent(x),)) for x in (1_000, 16_000, 64_000, 128_000)])
    assert isinstance(found, CannotTell)
    assert "repeats" in found.would_tell


def test_noise_that_would_hide_a_doubled_slope_cannot_tell() -> None:
    found = [knee(curve(line, seed=seed, noise_frac=0.25, num_repeats=2)) for seed in range(20)]
    assert all(one.largest_ratio <= 2 for one in found if isinstance(one, NoKnee))
    assert any(isinstance(one, CannotTell) and "repeats" in one.would_tell for one in found)
