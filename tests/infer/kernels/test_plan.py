from array import array

import pytest
import torch
from attention_case import tree_mask

from deepdraft.infer.kernels.plan import AttentionPlan


def plan_of(**changed) -> AttentionPlan:
    said = {"page_size": 4, "query_lens": [1, 3], "kv_lens": [5, 3], "pages": [[7, 2], [4]]} | changed
    return AttentionPlan.of(**said)


def test_page_lists_are_those_of_flashinfer():
    plan = plan_of()
    assert plan.qo_indptr.tolist() == [0, 1, 4]
    assert plan.kv_indptr.tolist() == [0, 2, 3]
    assert plan.kv_indices.tolist() == [7, 2, 4]
    assert plan.kv_last_page_len.tolist() == [1, 3]
    lists = (plan.qo_indptr, plan.kv_indptr, plan.kv_indices, plan.kv_last_page_len)
    assert {listed.dtype for listed in lists} == {torch.int32}
    assert plan.query_rows == ((0, 1), (1, 4))


@pytest.mark.parametrize("kv_len", [1, 3, 4, 5, 8])
def test_the_last_page_holds_between_one_and_a_page_of_tokens(kv_len):
    plan = AttentionPlan.of(page_size=4, query_lens=[1], kv_lens=[kv_len], pages=[[0, 1]])
    assert plan.kv_last_page_len.item() == kv_len - 4 * (len(plan.pages[0]) - 1)
    assert 1 <= plan.kv_last_page_len.item() <= 4


def test_pages_beyond_the_cached_tokens_are_left_out():
    assert [list(pages) for pages in plan_of(pages=[[7, 2, 9, 9], [4, 1]]).pages] == [[7, 2], [4]]


@pytest.mark.parametrize("listed", [list, tuple, lambda pages: array("i", pages)])
def test_pages_are_copied_whatever_holds_them(listed):
    held = listed([7, 2])
    plan = plan_of(pages=[held, [4]])
    assert plan.pages[0] == array("i", [7, 2])
    if not isinstance(held, tuple):
        held[0] = 5
        held.append(9)  # an array whose memory a tensor looked at could not grow
    assert plan.kv_indices.tolist() == [7, 2, 4]
    assert plan.page_tensor(0).tolist() == [7, 2] and plan.page_tensor(0).dtype == torch.int64


def test_a_plan_of_nobody_lists_nothing():
    plan = AttentionPlan.of(page_size=4, query_lens=[], kv_lens=[], pages=[])
    assert plan.kv_indices.tolist() == [] and plan.kv_indptr.tolist() == [0] and plan.slots == ()


def test_slots_are_the_tokens_places_in_order():
    plan = plan_of()
    assert [slots.tolist() for slots in plan.slots] == [[28, 29, 30, 31, 8], [16, 17, 18]]
    assert all(slots.dtype == torch.int64 for slots in plan.slots)


def test_masks_are_kept_by_request_and_default_to_causal():
    mask = tree_mask([None, 0, 0])
    assert plan_of().tail_masks == (None, None)
    assert plan_of(tail_masks=[None, mask]).tail_masks[1] is mask


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"query_lens": [1]}, "same requests"),
        ({"kv_lens": [5, 3, 1]}, "same requests"),
        ({"query_lens": [0, 3]}, "0 queries of 5"),
        ({"query_lens": [6, 3]}, "6 queries of 5"),
        ({"kv_lens": [9, 3]}, "2 pages of 4 can't hold 9"),
    ],
)
def test_lengths_that_contradict_each_other_are_refused(changed, why):
    with pytest.raises(ValueError, match=why):
        plan_of(**changed)
