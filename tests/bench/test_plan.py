from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.bench.plan import decode_len, num_trial_requests, planned_trials, refusals
from deepdraft.errors import UsageError
from deepdraft.records import Capabilities, SweepSpec


def spec(**fields) -> SweepSpec:
    return SweepSpec(**{"url": "http://x", "context_lens": (1000, 4000), **fields})


def server(**fields) -> Capabilities:
    return Capabilities(engine="vllm", detected_by="test", **fields)


def reasons(asked: SweepSpec, **limits) -> dict[tuple[int, int], str]:
    return {(one.context_len, one.concurrency): one.reason for one in refusals(asked, server(**limits))}


def test_rounds_run_to_and_fro() -> None:
    trials = planned_trials(spec(concurrencies=(1, 2), num_repeats=3, num_warmups=0))
    points = [(1000, 1), (1000, 2), (4000, 1), (4000, 2)]
    assert [trial.point for trial in trials] == [*points, *points[::-1], *points]
    assert [trial.repeat_index for trial in trials] == [0] * 4 + [1] * 4 + [2] * 4
    assert trials[0].trial_id == "len1000-c1-r0"


def test_a_steady_drift_adds_the_same_to_every_point_over_two_rounds() -> None:
    trials = planned_trials(spec(context_lens=(1, 2, 3, 4, 5), num_repeats=2, num_warmups=0))
    places: Counter[int] = Counter()
    for place, trial in enumerate(trials):
        places[trial.context_len] += place
    assert set(places.values()) == {9}


def test_warmups_come_first_at_the_smallest_point() -> None:
    trials = planned_trials(spec(context_lens=(4000, 1000), concurrencies=(2, 1), num_warmups=2, num_repeats=1))
    assert [(trial.trial_id, trial.point, trial.is_warmup) for trial in trials[:3]] == [
        ("warmup-0", (1000, 1), True),
        ("warmup-1", (1000, 1), True),
        ("len4000-c2-r0", (4000, 2), False),
    ]


def test_warmups_of_a_resumed_sweep_are_others() -> None:
    trials = planned_trials(spec(num_warmups=2), num_earlier_warmups=3)
    assert [trial.trial_id for trial in trials if trial.is_warmup] == ["warmup-3", "warmup-4"]


def test_refused_points_are_left_out_of_everything() -> None:
    trials = planned_trials(spec(num_repeats=2), {(1000, 1)})
    assert {trial.point for trial in trials} == {(4000, 1)}
    assert trials[0].is_warmup
    assert planned_trials(spec(), {(1000, 1), (4000, 1)}) == ()


def test_no_points() -> None:
    with pytest.raises(UsageError, match="nothing to measure"):
        planned_trials(spec(context_lens=()))


@given(
    st.lists(st.integers(1, 10**6), min_size=1, max_size=6, unique=True),
    st.lists(st.integers(1, 64), min_size=1, max_size=4, unique=True),
    st.integers(1, 5),
    st.integers(0, 3),
)
def test_every_point_and_repeat_once_under_a_name_of_its_own(lens, concurrencies, num_repeats, num_warmups) -> None:
    asked = spec(
        context_lens=tuple(lens),
        concurrencies=tuple(concurrencies),
        num_repeats=num_repeats,
        num_warmups=num_warmups,
    )
    trials = planned_trials(asked)
    assert trials == planned_trials(asked)  # a resumed sweep must find the same
    assert len({trial.trial_id for trial in trials}) == len(trials)
    measured = Counter((trial.point, trial.repeat_index) for trial in trials if not trial.is_warmup)
    assert set(measured.values()) == {1}
    assert len(measured) == len(lens) * len(concurrencies) * num_repeats


@pytest.mark.parametrize(
    ("fields", "context_len", "expected"),
    [
        ({}, 1_000, 64),
        ({}, 200_000, 64),
        ({"decode_len": 5}, 1_000, 5),
        ({"method": "two-point"}, 99_999, 16),
        ({"method": "two-point"}, 100_000, 8),
        ({"method": "two-point", "decode_len": 32}, 100_000, 32),
    ],
)
def test_decode_len(fields, context_len, expected) -> None:
    assert decode_len(spec(**fields), context_len) == expected


@pytest.mark.parametrize(("asked", "concurrency", "expected"), [(None, 4, 4), (9, 4, 9), (2, 4, 4)])
def test_num_trial_requests(asked, concurrency, expected) -> None:
    assert num_trial_requests(spec(num_requests=asked), concurrency) == expected


class TestRefusals:
    def test_nothing_known_nothing_refused(self) -> None:
        assert reasons(spec(context_lens=(10**7,))) == {}

    def test_output_counts_too(self) -> None:
        assert reasons(spec(decode_len=8), max_context_len=4008) == {}
        (reason,) = reasons(spec(decode_len=9), max_context_len=4008).values()
        assert reason == "4,000 prompt + 9 output tokens exceed the server's context limit of 4,008"

    def test_the_token_of_the_first_request_of_a_pair_counts_too(self) -> None:
        assert set(reasons(spec(decode_len=8, method="two-point"), max_context_len=4008)) == {(4000, 1)}

    def test_a_limit_on_the_prompt_alone(self) -> None:
        assert reasons(spec(), max_prompt_len=4000) == {}
        assert "exceed the 3,999 this server accepts" in reasons(spec(), max_prompt_len=3999)[4000, 1]

    def test_the_pool(self) -> None:
        assert "exceed the KV pool of 4,063 tokens" in reasons(spec(), kv_pool_tokens=4063)[4000, 1]

    def test_the_pool_shared(self) -> None:
        found = reasons(spec(concurrencies=(1, 2, 4)), kv_pool_tokens=9_000)
        assert set(found) == {(4000, 4)}
        assert found[4000, 4].startswith("4 requests of 4,064 tokens exceed the KV pool of 9,000")
