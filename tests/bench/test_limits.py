from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deepdraft.bench.limits import LOADING_LIMIT_S, first_token_limit_s, loading_limit_s, stall_limit_s
from deepdraft.records import Limits

LENS = st.integers(1, 2_000_000)


@given(LENS, LENS, st.integers(0, 64))
def test_limits_grow_with_the_context(one, other, num_others) -> None:
    short, long = sorted((one, other))
    limits = Limits()
    assert first_token_limit_s(limits, short, num_others) <= first_token_limit_s(limits, long, num_others)
    assert stall_limit_s(limits, short, num_others) <= stall_limit_s(limits, long, num_others)


@given(LENS, st.integers(0, 64))
def test_requests_beside_it_lengthen_them(context_len, num_others) -> None:
    limits = Limits()
    assert first_token_limit_s(limits, context_len, num_others + 1) > first_token_limit_s(
        limits, context_len, num_others
    )
    assert stall_limit_s(limits, context_len, num_others + 1) > stall_limit_s(limits, context_len, num_others)


@given(LENS, st.lists(st.tuples(LENS, st.floats(0, 10_000)), max_size=4))
def test_what_was_seen_can_only_lengthen_them(context_len, seen) -> None:
    blind = first_token_limit_s(Limits(), context_len, 0)
    assert first_token_limit_s(Limits(), context_len, 0, tuple(seen)) >= blind


def test_a_slow_server_is_given_the_time_it_showed_to_need() -> None:
    # 60 s at 32k: 128k is 4 times as long, 16 times the attention, and ten times that is no fault yet.
    assert first_token_limit_s(Limits(), 128_000, 0, ((32_000, 60.0),)) == 9_600
    assert first_token_limit_s(Limits(), 8_000, 0, ((32_000, 60.0),)) == 600


def test_the_reference_deployment_is_far_from_them() -> None:
    # 6.4 minutes to the first token at 185k, 1.43 s a token.
    assert first_token_limit_s(Limits(), 185_000, 0) > 2 * 384
    assert stall_limit_s(Limits(), 185_000, 0) > 100 * 1.43


def test_what_the_user_says_holds() -> None:
    limits = Limits(first_token_s=3.0, stall_s=2.0)
    assert first_token_limit_s(limits, 10**6, 63, ((1000, 99.0),)) == 3.0
    assert stall_limit_s(limits, 10**6, 63) == 2.0


def test_loading() -> None:
    assert loading_limit_s(Limits()) == LOADING_LIMIT_S
    assert loading_limit_s(Limits(server_wait_s=5.0)) == 5.0
    assert loading_limit_s(Limits(server_wait_s=3600.0)) == 3600.0
