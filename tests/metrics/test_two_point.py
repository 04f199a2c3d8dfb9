import pytest
from trace_builder import request, steady, trace

from deepdraft.metrics import Pair, pairs_of, refusal, two_point_tpot_s, two_point_ttft_s


def first(ttft_s=1.0, **fields):
    fields = {"usage": 1, "prompt": 1000, "cached": 0} | fields
    failed, index = fields.pop("failed", None), fields.pop("index", 0)
    overhead = fields.pop("overhead", 7)
    one = trace([(ttft_s, "t"), (ttft_s + 0.001, "d")], **fields)
    return request(
        one, role="first", max_tokens=1, failed=failed, request_index=index, prompt={"overhead_len": overhead}
    )


def second(num_tokens=17, ttft_s=1.0, gap_s=0.05, **fields):
    asked, failed, index = fields.pop("asked", 17), fields.pop("failed", None), fields.pop("index", 0)
    overhead = fields.pop("overhead", 7)
    one = steady(num_tokens, ttft_s=ttft_s, gap_s=gap_s, **fields)
    return request(
        one, role="second", max_tokens=asked, failed=failed, request_index=index, prompt={"overhead_len": overhead}
    )


def test_figures_of_a_clean_pair():
    pair = Pair(first=first(), second=second())
    assert refusal(pair) is None
    assert two_point_ttft_s(pair) == pytest.approx(1.0)
    assert two_point_tpot_s(pair) == pytest.approx(0.05)


def test_time_a_token_rests_on_the_tokens_that_came():
    assert two_point_tpot_s(Pair(first=first(), second=second(9, gap_s=0.1))) == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (Pair(first=first(), second=second(cached=990)), "the second request was served from a cache: 990 of 1,000"),
        (Pair(first=first(cached=500), second=second(cached=7)), "the first request was served from a cache: 500"),
        (Pair(first=first(), second=second(9)), "the second request ended early: 9 of 17 tokens"),
        (Pair(first=first(), second=second(gap_s=0.001, ttft_s=0.1)), "the second request was not longer"),
        (Pair(first=first(), second=second(prompt=999)), "the two prompts differ: 1,000 and 999 tokens"),
        (Pair(first=first(failed="no answer"), second=second()), "the first request failed: no answer"),
        (Pair(first=first(), second=second(failed="cut")), "the second request failed: cut"),
        (Pair(first=first(usage=None), second=second()), "nobody counted the output tokens"),
        (Pair(first=first(usage=17), second=second()), "the second request has no more tokens than the first"),
    ],
)
def test_a_pair_is_refused_with_its_reason(pair, reason):
    assert refusal(pair).startswith(reason)


def test_the_shared_template_is_no_hit():
    assert refusal(Pair(first=first(cached=0), second=second(cached=9))) is None
    assert refusal(Pair(first=first(cached=0), second=second(cached=10))) is not None


def test_an_unknown_template_may_be_hit_by_both_alike():
    both = Pair(first=first(cached=24, overhead=None), second=second(cached=24, overhead=None))
    assert refusal(both) is None
    one = Pair(first=first(cached=0, overhead=None), second=second(cached=24, overhead=None))
    assert refusal(one) is not None


def test_untold_cached_tokens_can_not_refuse():
    assert refusal(Pair(first=first(cached=None), second=second(cached=None))) is None


def test_requests_pair_by_index_or_in_order():
    by_index = (first(index=0), second(index=0), second(index=1), first(index=1))
    pairs, alone = pairs_of(by_index)
    assert [(pair.first.request_index, pair.second.request_index) for pair in pairs] == [(0, 0), (1, 1)]
    assert alone == ()
    pairs, alone = pairs_of((first(index=0), second(index=1), first(index=2), second(index=3)))
    assert [(pair.first.request_index, pair.second.request_index) for pair in pairs] == [(0, 1), (2, 3)]


def test_a_retry_replaces_the_failed_attempt():
    again = second()
    pairs, alone = pairs_of((first(), second(failed="cut"), again))
    assert len(pairs) == 1 and pairs[0].second is again
    assert alone == ()


def test_a_request_without_its_other_stays_alone():
    pairs, alone = pairs_of((first(index=0), first(index=1), second(index=0)))
    assert len(pairs) == 1
    assert [one.request_index for one in alone] == [1]
