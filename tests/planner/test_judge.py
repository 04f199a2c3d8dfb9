from hypothesis import given
from hypothesis import strategies as st

from deepdraft.planner.judge import judgement

GIB = 2**30


def flat(length: int) -> tuple[int, int]:
    """1 GiB for 8,192 tokens, as much for a longer prompt, half as much again from the second chunk on."""
    need = GIB * min(length, 8192) // 8192
    return (need * 3 // 2 if length > 8192 else need), GIB // 2


def judged(reserve_gib: float, max_len: int = 100_000, starts: bool = True):
    return judgement(
        reserve_bytes=round(reserve_gib * GIB),
        reserve_error_bytes=GIB // 4,
        spike_of=flat,
        max_len=max_len,
        starts=starts,
    )


def test_from_safe_to_no_start():
    assert judged(2.3).outcome == "safe"
    assert judged(2.0).outcome == "tight"
    assert judged(1.4).outcome == "out_of_memory_in_prefill"
    assert judged(-0.1).outcome == judged(9, starts=False).outcome == "does_not_start"


def test_where_it_fails():
    assert judged(1.4).fails_at_len == 8193
    assert judged(0.5).fails_at_len == 4097
    assert judged(1.4, max_len=8192).fails_at_len is None
    assert judged(0.5, max_len=4096).outcome == "tight"


def test_every_verdict_on_a_running_server_asks_for_a_probe():
    for reserve_gib in (0.5, 2.0, 9.0):
        assert any("probe at the longest context" in each for each in judged(reserve_gib).advice)


ORDER = ("does_not_start", "out_of_memory_in_prefill", "tight", "safe")


@given(st.floats(-1, 4), st.floats(0, 2), st.integers(1, 200_000))
def test_more_reserve_is_never_worse_and_longer_prompts_never_better(reserve_gib, more_gib, max_len):
    now, then = judged(reserve_gib, max_len), judged(reserve_gib + more_gib, max_len)
    assert ORDER.index(then.outcome) >= ORDER.index(now.outcome)
    assert ORDER.index(judged(reserve_gib, max_len + 5000).outcome) <= ORDER.index(now.outcome)
    if now.fails_at_len is not None:
        reserve_bytes = round(reserve_gib * GIB)
        assert flat(now.fails_at_len)[0] > reserve_bytes
        assert now.fails_at_len == 1 or flat(now.fails_at_len - 1)[0] <= reserve_bytes
