import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.merge import merge

INF = float("inf")


def attention(scores: torch.Tensor, values: torch.Tensor) -> Attended:
    """scores [3, N], values [N, 5]"""
    return Attended(scores.softmax(dim=-1) @ values, scores.logsumexp(dim=-1))


def problem(num_keys: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(seed)
    return torch.randn(3, num_keys, dtype=torch.float64) * 20, torch.randn(num_keys, 5, dtype=torch.float64)


def assert_same(found: Attended, expected: Attended) -> None:
    torch.testing.assert_close(found.out, expected.out, atol=1e-12, rtol=0)
    torch.testing.assert_close(found.lse, expected.lse, atol=1e-12, rtol=0)


@settings(deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 999), st.randoms())
def test_parts_merge_to_the_whole_in_any_order_and_any_grouping(part_lens, seed, random):
    scores, values = problem(sum(part_lens), seed)
    parts = [attention(*part) for part in zip(scores.split(part_lens, 1), values.split(part_lens), strict=True)]
    random.shuffle(parts)
    whole = attention(scores, values)
    assert_same(merge(parts), whole)
    cut = random.randint(0, len(parts) - 1)
    assert_same(merge([*parts[:cut], merge(parts[cut:])]), whole)


def test_a_row_that_saw_no_key_takes_no_part_whatever_its_out_is():
    scores, values = problem(4, 1)
    seen = attention(scores, values)
    scores[1] = -INF  # softmax over nothing: NaN
    unseen = attention(scores, values)
    assert unseen.out[1].isnan().all()
    merged = merge([unseen, seen])
    torch.testing.assert_close(merged.out[1], seen.out[1])
    assert merged.lse[1] == seen.lse[1]
    assert merged.lse[0] > seen.lse[0]


def test_where_no_part_saw_a_key_the_result_saw_none_either():
    nothing = Attended(torch.full((2, 3), torch.nan), torch.full((2,), -INF))
    merged = merge([nothing, nothing])
    assert merged.out.eq(0).all()
    assert merged.lse.eq(-INF).all()
    assert_same(merge([merged, Attended(torch.ones(2, 3), torch.ones(2))]), Attended(torch.ones(2, 3), torch.ones(2)))


def test_scores_far_apart_neither_overflow_nor_vanish():
    low, high = (Attended(torch.full((1, 1), value), torch.tensor([lse])) for value, lse in ((1.0, -2e4), (2.0, 2e4)))
    assert merge([low, high]).out.item() == 2.0
    assert merge([low, high]).lse.item() == 2e4
    assert merge([low, low]).out.item() == 1.0
    assert merge([low, low]).lse.item() == pytest.approx(-2e4 + 0.6931, abs=0.01)


def test_out_keeps_its_dtype_and_lse_its_own():
    part = Attended(torch.ones(2, 3, dtype=torch.bfloat16), torch.zeros(2))
    merged = merge([part, part])
    assert (merged.out.dtype, merged.lse.dtype) == (torch.bfloat16, torch.float32)


def test_the_parts_are_left_as_they_were():
    parts = [Attended(torch.ones(2, 3), torch.tensor([0.0, 1.0])) for _ in range(2)]
    merge(parts)
    assert all(part.out.eq(1).all() and part.lse.tolist() == [0.0, 1.0] for part in parts)


def test_nothing_cannot_be_merged():
    with pytest.raises(ValueError, match="nothing to merge"):
        merge([])
