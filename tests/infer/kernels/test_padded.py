import torch
from attention_case import case, random_tree, tree_mask
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.infer.kernels.padded import MAX_WASTE, groups, is_padded, padded_group
from deepdraft.infer.kernels.reference import full_mask
from deepdraft.infer.kernels.work import work


@settings(deadline=None, max_examples=50)
@given(
    st.lists(st.tuples(st.integers(1, 80), st.integers(0, 200)), min_size=1, max_size=12),
    st.integers(1, 1000),
    st.integers(1, 4),
)
def test_every_request_is_in_one_group_and_groups_keep_their_bounds(lens, max_tokens, group_size):
    plan = case([q for q, _ in lens], [q + prefix for q, prefix in lens]).plan
    found = list(groups(plan, group_size=group_size, max_tokens=max_tokens))
    assert sorted(request for group in found for request in group) == list(range(len(lens)))
    for group in found:
        if is_padded(plan, group, group_size=group_size, max_tokens=max_tokens):
            kv_lens = [plan.kv_lens[request] for request in group]
            assert len(group) * max(kv_lens) <= max_tokens
            assert max(kv_lens) <= MAX_WASTE * min(kv_lens)
            assert len({plan.query_lens[request] for request in group}) == 1
        else:
            assert len(group) == 1


def test_decode_of_like_lengths_goes_together_and_a_long_prompt_alone():
    plan = case([1, 300, 1, 1, 1], [100, 300, 90, 4000, 110]).plan
    planned = work(plan, block_len=3000, group_size=4)
    assert [group.query_rows.tolist() for group in planned.padded] == [[301, 0, 303]]
    assert [request for request, _ in planned.alone] == [3, 1]


def test_a_lone_decode_is_not_padded_but_a_lone_short_tree_is():
    assert work(case([1], [100]).plan, block_len=1000, group_size=4).padded == ()
    tree = case([7], [100], tail_masks=[tree_mask(random_tree(7, 0))]).plan
    assert work(tree, block_len=1000, group_size=4).alone == ()


def test_padding_reads_the_request_s_own_slots_and_hides_them():
    mask = tree_mask(random_tree(5, 2))
    plan = case([5, 5], [20, 17], page_size=4, is_shuffled=True, tail_masks=[mask, None]).plan
    group = padded_group(plan, [1, 0], group_size=2)
    slots = group.slots.pages.view(2, 20)
    assert slots[1].tolist() == plan.slots[0].tolist()
    assert slots[0].tolist() == [*plan.slots[1].tolist(), *[plan.slots[1][0].item()] * 3]
    assert group.query_rows.tolist() == [5, 6, 7, 8, 9, 0, 1, 2, 3, 4]
    seen = group.mask.eq(0)
    assert seen.shape == (2, 1, 2 * 5, 20)
    for head in (slice(0, 5), slice(5, 10)):
        assert torch.equal(seen[1, 0, head], full_mask(plan, 0))
        assert torch.equal(seen[0, 0, head, :17], full_mask(plan, 1))
        assert not seen[0, 0, head, 17:].any()
    assert group.mask[~seen].eq(float("-inf")).all()
