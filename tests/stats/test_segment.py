import pytest
from synthetic import curve, deployment_tpot

from deepdraft.stats.observed import Observed
from deepdraft.stats.segment import segment_slopes

PUBLISHED_MS_PER_1K = (
    (4.36, 4.34, 4.37),
    (5.17, 5.10, 5.23),
    (6.20, 5.96, 6.44),
    (5.58, 5.09, 6.09),
    (12.5, 10.4, 14.9),
)


def test_the_slopes_of_the_published_table_by_rounding_alone() -> None:
    found = segment_slopes(deployment_tpot())
    assert len(found) == 5
    for segment, (slope, low, high) in zip(found, PUBLISHED_MS_PER_1K, strict=True):
        interval = segment.slope.interval
        assert interval is not None
        assert segment.slope.value * 1e6 == pytest.approx(slope, rel=0.005)
        assert interval.low * 1e6 == pytest.approx(low, rel=0.005)
        assert interval.high * 1e6 == pytest.approx(high, rel=0.005)
        assert "rounding alone" in interval.method


def test_slopes_cover_the_truth() -> None:
    hits = [
        segment.slope.interval.has(5e-7)
        for seed in range(60)
        for segment in segment_slopes(curve(lambda n: 0.008 + 5e-7 * n, seed=seed))
        if segment.slope.interval is not None
    ]
    assert len(hits) == 300
    assert sum(hits) >= 270


def test_the_exponent_tells_proportional_from_quadratic() -> None:
    for power in (1, 2):
        for segment in segment_slopes(curve(lambda n, power=power: 1e-9 * n**power, seed=2)):
            assert segment.exponent.interval is not None and segment.exponent.interval.has(power)


def test_without_repeats_and_rounding_a_slope_has_no_interval() -> None:
    (segment,) = segment_slopes([Observed(x=1, values=(1.0,)), Observed(x=2, values=(3.0,))])
    assert segment.slope.value == 2
    assert segment.slope.interval is None and segment.slope.note is not None


def test_one_point_has_no_slope() -> None:
    assert segment_slopes([Observed(x=1, values=(1.0,))]) == ()
