import dataclasses
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import request, steady, trace

from deepdraft.metrics import (
    intervals_s,
    makespan_s,
    mean_concurrency,
    output_tok_s,
    peak_concurrency,
    total_tok_s,
)


def test_one_stream_is_never_three():
    """Peers that count in one-second buckets report 3 for back-to-back requests."""
    starts = [0.1 * place for place in range(31)]
    assert peak_concurrency(list(pairwise(starts))) == 1


def test_touching_ends_do_not_overlap():
    assert peak_concurrency([(0.0, 1.0), (1.0, 2.0)]) == 1
    assert peak_concurrency([(0.0, 1.0), (0.999, 2.0)]) == 2


def test_an_empty_interval_is_never_in_flight():
    assert peak_concurrency([(1.0, 1.0)]) == 0
    assert peak_concurrency([]) == 0


def test_mean_and_makespan():
    intervals = [(0.0, 4.0), (1.0, 2.0), (6.0, 8.0)]
    assert makespan_s(intervals) == 8.0
    assert mean_concurrency(intervals) == pytest.approx(7 / 8)
    assert makespan_s([]) is None
    assert mean_concurrency([]) is None
    assert mean_concurrency([(1.0, 1.0)]) is None


def test_throughput_is_over_the_makespan():
    requests = [request(steady(64), started_at_s=at_s) for at_s in (0.0, 0.5)]
    span_s = 0.5 + requests[0].trace.end_s
    assert output_tok_s(requests) == pytest.approx(128 / span_s)
    assert total_tok_s(requests) == pytest.approx(2128 / span_s)


def test_throughput_needs_every_count():
    requests = [request(steady(64)), request(trace([(0.1, "t"), (0.2, "t")]))]
    assert output_tok_s(requests) is None
    assert total_tok_s(requests) is None
    assert output_tok_s([]) is None


INTERVALS = st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=25)


@given(INTERVALS)
def test_the_peak_is_what_a_look_at_every_moment_sees(pairs):
    intervals = [(float(start), float(start + length)) for start, length in pairs]
    seen = max((sum(start <= at < end for start, end in intervals) for at in range(61)), default=0)
    assert peak_concurrency(intervals) == seen
    mean = mean_concurrency(intervals)
    assert mean is None or mean <= seen + 1e-9


def test_a_request_without_an_end_has_no_interval():
    endless = request(dataclasses.replace(steady(4), end_s=None))
    assert intervals_s([endless, request(steady(4), started_at_s=2.0)]) == ((2.0, 2.0 + steady(4).end_s),)
