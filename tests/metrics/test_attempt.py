import dataclasses

from trace_builder import header, request, steady, trace, trial

from deepdraft.metrics import trial_requests_of
from deepdraft.records import Run

ONE = steady(8)
TRIAL = "len1000-c2-r0"


def run(measurements, trials=(), **spec):
    return Run(header=header(spec=spec), measurements=tuple(measurements), trials=tuple(trials))


def test_requests_of_a_cut_short_try_do_not_count_twice():
    first_try = [request(ONE, TRIAL, request_index=0, started_at_s=1.0)]
    second_try = [request(ONE, TRIAL, request_index=index, started_at_s=50.0 + index) for index in range(2)]
    (group,) = trial_requests_of(
        run(first_try + second_try, [trial(TRIAL, concurrency=2, started_at_s=49.0, took_s=20.0)])
    )
    assert group.requests == tuple(second_try)
    assert group.superseded == tuple(first_try)


def test_the_old_try_is_left_out_even_where_the_new_one_lacks_that_request():
    """The trial's time tells them apart, not the numbers of its requests."""
    old = request(ONE, TRIAL, request_index=1, started_at_s=1.0)
    new = request(ONE, TRIAL, request_index=0, started_at_s=50.0)
    (group,) = trial_requests_of(run([old, new], [trial(TRIAL, started_at_s=49.0, took_s=20.0)]))
    assert group.requests == (new,)
    assert group.superseded == (old,)


def test_a_retry_inside_a_try_keeps_the_failure():
    failed = request(trace([]), TRIAL, attempt=0, failed="stalled", started_at_s=1.0)
    again = request(ONE, TRIAL, attempt=1, started_at_s=3.0)
    (group,) = trial_requests_of(run([failed, again], [trial(TRIAL, started_at_s=0.0)]))
    assert group.requests == (failed, again)
    assert group.measured == (again,)
    assert group.superseded == ()


def test_a_restarted_clock_still_leaves_one_of_each():
    old = request(ONE, TRIAL, started_at_s=1.0)
    new = request(ONE, TRIAL, started_at_s=1.5)
    (group,) = trial_requests_of(run([old, new], [trial(TRIAL, started_at_s=0.5)]))
    assert group.requests == (new,)


def test_a_trial_without_its_line_counts_but_has_no_surroundings():
    (group,) = trial_requests_of(run([request(ONE, TRIAL, asked=2000)], concurrencies=(4,)))
    assert group.trial is None
    assert (group.context_len, group.concurrency) == (2000, 4)
    assert len(group.measured) == 1


def test_a_cut_short_trials_concurrency_is_the_smallest_it_fits():
    requests = [request(ONE, TRIAL, request_index=index, started_at_s=0.01 * index) for index in range(3)]
    (group,) = trial_requests_of(run(requests, concurrencies=(1, 2, 4, 8)))
    assert group.concurrency == 4


def test_the_last_line_of_a_trial_wins_and_order_is_by_time():
    trials = [
        trial("b", started_at_s=30.0),
        trial("a", started_at_s=0.0),
        trial("a", started_at_s=60.0, took_s=9.0),
    ]
    requests = [
        request(ONE, "b", started_at_s=31.0),
        request(ONE, "a", started_at_s=1.0),
        request(ONE, "a", started_at_s=61.0),
    ]
    groups = trial_requests_of(run(requests, trials))
    assert [group.trial_id for group in groups] == ["b", "a"]
    assert [one.started_at_s for one in groups[1].requests] == [61.0]


def test_warmups_are_no_measured_requests():
    warm = request(ONE, "warmup-0", is_warmup=True)
    (group,) = trial_requests_of(run([warm]))
    assert group.is_warmup
    assert group.measured == ()
    (marked,) = trial_requests_of(
        run([dataclasses.replace(warm, is_warmup=False)], [trial("warmup-0", is_warmup=True)])
    )
    assert marked.is_warmup
