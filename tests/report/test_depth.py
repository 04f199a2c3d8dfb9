import dataclasses

import pytest
from trace_builder import accepted, repeats, steady

from deepdraft.metrics import points_of
from deepdraft.report.depth import depth_rates


def rates(*counts):
    run = repeats(*[steady(30, cached=0)] * len(counts), speculation="yes")
    measurements = tuple(
        dataclasses.replace(one, acceptance=count) for one, count in zip(run.measurements, counts, strict=True)
    )
    (point,) = points_of(dataclasses.replace(run, measurements=measurements))
    return depth_rates(point)


def test_requests_are_weighted_by_their_steps():
    found = rates(accepted(accepted_len_histogram=(10, 0, 10)), accepted(accepted_len_histogram=(0, 80)))
    assert found is not None
    assert found.num_steps == 100
    assert found.rates == pytest.approx((0.9, 0.1))


def test_depths_that_nothing_reached_are_cut_to_the_first_of_them():
    found = rates(accepted(accepted_len_histogram=(5, 5, 0, 0, 0, 0)))
    assert found is not None
    assert found.rates == (0.5, 0.0)


def test_without_counts_nothing_is_told():
    assert rates(None, None) is None
    assert rates(accepted(stated_acceptance_len=2.5)) is None


def test_a_single_count_at_each_depth_is_enough_with_its_steps():
    found = rates(accepted(num_steps=40, accepted_at_depth=(30, 10)))
    assert found is not None
    assert found.rates == (0.75, 0.25)
