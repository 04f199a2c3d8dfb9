import pytest

from deepdraft.stats.observed import Observed, by_place, reciprocal


def test_a_rounded_rate_becomes_a_time_with_unequal_sides() -> None:
    time = reciprocal(Observed(x=185_000, values=(0.7,), half_width=0.05))
    assert time.middle == pytest.approx(1.42857, rel=1e-4)
    assert time.rounding == pytest.approx((1.33333, 1.53846), rel=1e-4)
    assert time.error == pytest.approx(0.10989, rel=1e-3)


def test_the_inverse_of_the_inverse_is_the_value() -> None:
    once = Observed(x=1, values=(2.0, 4.0), half_width=0.5)
    twice = reciprocal(reciprocal(once, 3.0), 3.0)
    assert twice.values == pytest.approx(once.values)
    assert reciprocal(Observed(x=1, values=(4.0,), half_width=1.0)).rounding == pytest.approx((1 / 5, 1 / 3))


def test_no_reciprocal_of_what_may_be_zero() -> None:
    with pytest.raises(ValueError, match="zero"):
        reciprocal(Observed(x=1, values=(0.04,), half_width=0.05))


def test_without_rounding_there_is_no_error_and_no_limit() -> None:
    observed = Observed(x=1, values=(1.0, 5.0, 2.0))
    assert (observed.middle, observed.rounding, observed.error) == (2.0, None, 0.0)


def test_places_are_ordered_and_brought_together() -> None:
    places = by_place((Observed(x=2, values=(3.0,)), Observed(x=1, values=(1.0,)), Observed(x=2, values=(5.0,))))
    assert [(place.x, place.values) for place in places] == [(1, (1.0,)), (2, (3.0, 5.0))]


@pytest.mark.parametrize(
    "observed", [Observed(x=1, values=(0.0,)), Observed(x=0, values=(1.0,)), Observed(x=1, values=())]
)
def test_what_is_not_above_zero_is_refused(observed: Observed) -> None:
    with pytest.raises(ValueError, match="not above zero"):
        by_place((observed,))
