from typing import Any

import pytest
from synthetic import DEPLOYMENT_LENGTHS, curve, deployment_tpot

from deepdraft.stats.interval import CannotTell, Estimate
from deepdraft.stats.law import LinearLaw, QuadraticLaw, linear_law, quadratic_law
from deepdraft.stats.observed import Observed

INTERCEPT, SLOPE = 0.008, 5e-7
A, B, C = 0.05, 2e-4, 1e-9
TTFT_S = (0.46, 4.3, 17.6, 51, 186, 384)
TTFT_HALF_WIDTHS = (0.005, 0.05, 0.05, 0.5, 3, 3)


def line(length: float) -> float:
    return INTERCEPT + SLOPE * length


def parabola(length: float) -> float:
    return A + B * length + C * length**2


def linear(observed: tuple[Observed, ...]) -> LinearLaw:
    found = linear_law(observed)
    assert isinstance(found, LinearLaw)
    return found


def quadratic(observed: tuple[Observed, ...]) -> QuadraticLaw:
    found = quadratic_law(observed)
    assert isinstance(found, QuadraticLaw)
    return found


def covers(estimate: Estimate, truth: float) -> bool:
    return estimate.interval is not None and estimate.interval.has(truth)


SWEEPS: dict[str, dict[str, Any]] = {
    "three repeats": {},
    "two repeats": {"num_repeats": 2},
    "five noisy repeats": {"num_repeats": 5, "noise_frac": 0.05},
    "an outlier at the longest": {"outlier_at": 128_000},
    "an outlier at the shortest": {"outlier_at": 1_000},
    "an outlier among two": {"num_repeats": 2, "outlier_at": 128_000},
    "rounded": {"noise_frac": 0.01, "half_width": 0.0005},
    "single values": {"num_repeats": 1},
    "single rounded values": {"num_repeats": 1, "noise_frac": 0.0, "half_width": 0.0005},
}


@pytest.mark.parametrize("sweep", SWEEPS.values(), ids=SWEEPS)
def test_a_lines_intervals_cover_the_truth(sweep: dict[str, Any]) -> None:
    num_sweeps = 100 if "half_width" not in sweep else 40  # linear programs take their time
    found = [linear(curve(line, seed=seed, **sweep)) for seed in range(num_sweeps)]
    for truth, estimates in (
        (INTERCEPT, [law.intercept for law in found]),
        (SLOPE, [law.slope for law in found]),
        (line(100_000), [law.at(100_000) for law in found]),
    ):
        assert sum(covers(estimate, truth) for estimate in estimates) >= 0.9 * num_sweeps


@pytest.mark.parametrize("sweep", [{}, {"num_repeats": 1}, {"outlier_at": 128_000}], ids=str)
def test_a_parabolas_intervals_cover_the_truth(sweep: dict[str, Any]) -> None:
    found = [quadratic(curve(parabola, seed=seed, **sweep)) for seed in range(50)]
    for truth, estimates in (
        (A, [law.a for law in found]),
        (B, [law.b for law in found]),
        (C, [law.c for law in found]),
        (parabola(90_000), [law.at(90_000) for law in found]),
    ):
        assert sum(covers(estimate, truth) for estimate in estimates) >= 45
    assert all(law.is_quadratic == "yes" for law in found)


def test_intervals_are_no_wider_than_they_must_be() -> None:
    for seed in range(20):
        interval = linear(curve(line, seed=seed)).slope.interval
        assert interval is not None and interval.high - interval.low < 0.12 * SLOPE


def test_a_line_is_not_quadratic() -> None:
    verdicts = [quadratic(curve(line, seed=seed)).is_quadratic for seed in range(40)]
    assert "yes" not in verdicts
    assert verdicts.count("no") >= 30


def test_coefficients_are_never_negative() -> None:
    for seed in range(20):
        law = quadratic(curve(lambda n: 0.01 + 1e-5 * n**0.8, seed=seed))
        for estimate in (law.a, law.b, law.c):
            assert estimate.value >= 0
            assert estimate.interval is not None and estimate.interval.low >= 0


def test_a_knee_makes_the_line_lacking_and_its_intervals_wide() -> None:
    law = linear(curve(lambda n: line(n) + (2e-6 * (n - 64_000) if n > 64_000 else 0), seed=1))
    assert law.is_lacking
    assert "no straight line" in law.doubts[0]
    assert law.slope.interval is not None and "scatter of the points" in law.slope.interval.method
    assert law.slope.interval.high - law.slope.interval.low > SLOPE


def test_a_true_line_is_rarely_called_lacking() -> None:
    assert sum(linear(curve(line, seed=seed)).is_lacking for seed in range(100)) <= 12  # 5 expected


def test_the_published_table_is_no_line() -> None:
    law = linear(deployment_tpot())
    assert law.is_lacking
    assert law.slope.value == pytest.approx(5.7e-6, rel=0.05)
    assert law.robust_slope.value == pytest.approx(5.8e-6, rel=0.01)
    interval = law.robust_slope.interval
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((4.9e-6, 8.9e-6), rel=0.01)
    assert law.residual_frac > 0.3
    assert law.residuals[-1].x == 185_000


def test_the_published_prefill_is_quadratic() -> None:
    law = quadratic(
        tuple(
            Observed(x=length, values=(value,), half_width=half_width)
            for length, value, half_width in zip(DEPLOYMENT_LENGTHS, TTFT_S, TTFT_HALF_WIDTHS, strict=True)
        )
    )
    assert law.is_quadratic == "yes"
    assert (law.a.value, law.b.value, law.c.value) == pytest.approx((0.07, 2.68e-4, 9.14e-9), rel=0.05)
    assert law.residual_frac < 0.08
    shares = law.shares(185_000)
    assert shares.quadratic.value == pytest.approx(0.86, abs=0.03)
    assert shares.constant.value + shares.linear.value + shares.quadratic.value == pytest.approx(1)


def test_shares_cover_the_truth_and_are_always_the_same() -> None:
    truth = C * 64_000**2 / parabola(64_000)
    laws = [quadratic(curve(parabola, seed=seed)) for seed in range(40)]
    assert sum(covers(law.shares(64_000).quadratic, truth) for law in laws) >= 35
    assert laws[0].shares(64_000) == laws[0].shares(64_000)


def test_an_intercept_below_zero_is_impossible() -> None:
    law = linear(curve(lambda n: 1e-6 * n - 4e-4, seed=0, noise_frac=0.002))
    assert law.is_impossible
    assert law.doubts[0].startswith("impossible")


def test_an_intercept_that_may_be_zero_is_said_to_be() -> None:
    found = [linear(curve(lambda n: 1e-6 * n, seed=seed)) for seed in range(30)]
    below = [law for law in found if law.is_impossible]
    assert below
    assert sum("within its interval" in law.doubts[0] for law in below) >= len(below) - 2


def test_a_point_that_carries_the_slope_is_named() -> None:
    law = linear((*deployment_tpot()[:4], Observed(x=185_000, values=(4.0,))))
    assert any("rests on the point at 185,000" in doubt for doubt in law.doubts)


def test_rounding_alone_says_so_and_noise_is_not_in_it() -> None:
    exact = tuple(Observed(x=x, values=(line(x),), half_width=1e-4) for x in (1_000, 10_000, 100_000))
    law = linear(exact)
    interval = law.slope.interval
    assert interval is not None and "rounding" in interval.method
    half = 2e-4 / 99_000  # both ends off by as much as they may be
    assert interval.high - SLOPE >= half * 0.999


def test_without_any_knowledge_of_errors_two_free_points_have_no_interval() -> None:
    law = quadratic_law([Observed(x=x, values=(parabola(x),)) for x in (1_000, 4_000, 16_000)])
    assert isinstance(law, CannotTell)


@pytest.mark.parametrize("lengths", [(), (1_000,), (1_000, 2_000)])
def test_two_points_make_no_line(lengths: tuple[int, ...]) -> None:
    found = linear_law([Observed(x=x, values=(line(x),)) for x in lengths])
    assert isinstance(found, CannotTell)
    assert found.would_tell


def test_three_close_points_tell_neither_linear_nor_quadratic() -> None:
    found = quadratic_law([Observed(x=x, values=(line(x),) * 3) for x in (1_000, 2_000, 4_000)])
    assert isinstance(found, CannotTell)
    assert "can't be told" in found.reason
    assert found.propose == (16_000,)


def test_a_narrow_span_tells_neither() -> None:
    found = quadratic_law([Observed(x=x, values=(line(x),) * 3) for x in (1_000, 2_000, 3_000, 4_000)])
    assert isinstance(found, CannotTell)
    assert min(found.propose) >= 8_000
