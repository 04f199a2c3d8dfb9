from dataclasses import replace

import pytest
import torch
from attention_case import case, random_tree, tree_mask

from deepdraft.infer.kernels.reference import full_mask
from deepdraft.infer.kernels.triton.lists import WORD_BITS, DeviceLists, Maxima, tail_bits

CPU = torch.device("cpu")


@pytest.mark.parametrize("num_nodes", [1, 2, 63, 64, 65, 150])
@pytest.mark.parametrize("is_tree", [False, True])
def test_bits_say_who_sees_whom(num_nodes, is_tree):
    mask = tree_mask(random_tree(num_nodes, 1)) if is_tree else None
    plan = case([1, num_nodes], [5, num_nodes + 3], tail_masks=[None, mask]).plan
    num_words = -(-num_nodes // WORD_BITS)
    bits = tail_bits(plan, num_words)
    seen = ((bits[:, :, None] >> torch.arange(WORD_BITS)) & 1).bool().flatten(1)
    assert seen[0, 0]
    assert not seen[0, 1:].any()
    assert torch.equal(seen[1:, :num_nodes], full_mask(plan, 1)[:, 3:])
    assert not seen[1:, num_nodes:].any()


def test_a_plans_own_lists_hold_it_and_no_more():
    plan = case([1, 4], [40, 9], page_size=16).plan
    lists = DeviceLists.of(plan)
    assert lists.maxima == Maxima(num_requests=2, num_rows=5, query_len=4, kv_len=40, num_pages=4)
    for name in ("qo_indptr", "kv_indptr", "kv_indices"):
        assert torch.equal(getattr(lists, name), getattr(plan, name))
    assert lists.kv_lens.tolist() == [40, 9]


def test_what_is_loaded_later_leaves_nothing_behind():
    long, short = (case(*lens, page_size=16).plan for lens in (([3, 4], [40, 9]), ([2], [30])))
    lists = DeviceLists.of(long)
    addresses = [tensor.data_ptr() for tensor in (lists.qo_indptr, lists.kv_indices, lists.tail_bits)]
    lists.load(short)
    assert lists.qo_indptr.tolist() == [0, 2, 2]
    assert lists.kv_lens.tolist() == [30, 0]
    assert lists.kv_indices[:2].tolist() == list(short.pages[0])
    assert addresses == [tensor.data_ptr() for tensor in (lists.qo_indptr, lists.kv_indices, lists.tail_bits)]


@pytest.mark.parametrize("exceeded", ["num_requests", "num_rows", "query_len", "kv_len", "num_pages"])
def test_more_than_there_is_room_for_is_refused(exceeded):
    plan = case([1, 4], [40, 9], page_size=16).plan
    maxima = Maxima.of(plan)
    lists = DeviceLists.empty(replace(maxima, **{exceeded: getattr(maxima, exceeded) - 1}), page_size=16, device=CPU)
    with pytest.raises(ValueError, match=f"{exceeded}={getattr(maxima, exceeded)}"):
        lists.load(plan)


def test_another_page_size_is_refused():
    with pytest.raises(ValueError, match="pages of 8 tokens for lists of pages of 16"):
        DeviceLists.of(case([1], [9], page_size=16).plan).load(case([1], [9], page_size=8).plan)


def test_a_plan_of_no_requests_has_lists():
    lists = DeviceLists.of(case([1], [9]).plan.of(page_size=16, query_lens=[], kv_lens=[], pages=[]))
    assert lists.qo_indptr.tolist() == [0]
    assert lists.maxima.num_rows == 0
