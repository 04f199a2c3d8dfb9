import math

import pytest
import torch
from attention_case import DIMS, EMBEDDED, GQA, KIMI, Case, assert_close, case, expansion, random_tree, tree_mask
from torch.nn.functional import scaled_dot_product_attention

from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.reference import ReferenceAttention, full_mask

REFERENCE = ReferenceAttention()


def by_hand(of: Case) -> Attended:
    """One query row and head at a time, in Python's numbers."""
    num_rows, num_heads, _ = of.queries.shape
    num_kv_heads, value_dim = of.layer.values.shape[1:]
    out, lse = torch.zeros(num_rows, num_heads, value_dim).double(), torch.zeros(num_rows, num_heads).double()
    for request, (first, stop) in enumerate(of.plan.query_rows):
        prefix_len = of.plan.kv_lens[request] - (stop - first)
        pages, mask = of.plan.pages[request], of.plan.tail_masks[request]
        for row in range(first, stop):
            seen = [
                token
                for token in range(of.plan.kv_lens[request])
                if token < prefix_len
                or (mask[row - first, token - prefix_len] if mask is not None else token - prefix_len <= row - first)
            ]
            slots = [
                pages[token // of.plan.page_size] * of.plan.page_size + token % of.plan.page_size for token in seen
            ]
            for head in range(num_heads):
                kv_head = head // (num_heads // num_kv_heads)
                scores = [of.scale * float(of.queries[row, head].dot(of.layer.keys[slot, kv_head])) for slot in slots]
                total = math.fsum(map(math.exp, scores))
                lse[row, head] = math.log(total)
                for slot, score in zip(slots, scores, strict=True):
                    out[row, head] += math.exp(score) / total * of.layer.values[slot, kv_head]
    return Attended(out, lse)


@pytest.mark.parametrize("dims", DIMS)
def test_attention_as_written_down_by_hand(dims):
    masks = [None, tree_mask(random_tree(5, 3)), None]
    of = case([1, 5, 4], [7, 9, 4], dims=dims, page_size=3, is_shuffled=True, tail_masks=masks, dtype=torch.float64)
    assert_close(of.attend(REFERENCE), by_hand(of), 1e-12)


def test_a_whole_prompt_is_causal_attention_as_torch_has_it():
    of = case([50], [50], dims=GQA, dtype=torch.float64)
    keys, values = (rows[of.plan.slots[0]].transpose(0, 1) for rows in (of.layer.keys, of.layer.values))
    expected = scaled_dot_product_attention(
        of.queries.transpose(0, 1), keys, values, is_causal=True, scale=of.scale, enable_gqa=True
    )
    torch.testing.assert_close(of.attend(REFERENCE).out, expected.transpose(0, 1))


@pytest.mark.parametrize("dims", [EMBEDDED, KIMI])
def test_expanded_is_absorbed_with_the_matrices_multiplied_out(dims):
    masks = [None, tree_mask(random_tree(9, 1)), None]
    of = case([1, 9, 20], [30, 40, 20], dims=dims, tail_masks=masks, dtype=torch.float64)
    expanded = expansion(of)
    absorbed = expanded.absorbed(of).attend(REFERENCE)
    out = torch.einsum("thl,hvl->thv", absorbed.out, expanded.value_up)
    assert_close(expanded.attend(REFERENCE, of), Attended(out, absorbed.lse), 1e-12)


@pytest.mark.parametrize(
    ("dtype", "lse_dtype"),
    [(torch.float64, torch.float64), (torch.float32, torch.float32), (torch.bfloat16, torch.float32)],
)
def test_results_have_the_queries_dtype_and_a_wide_lse(dtype, lse_dtype):
    of = case([2], [5], dtype=dtype, cache_dtype=torch.float16)
    for result in (of.attend(REFERENCE), expansion(of).attend(REFERENCE, of)):
        assert (result.out.dtype, result.lse.dtype) == (dtype, lse_dtype)


def test_the_mask_shows_the_prefix_to_all_and_the_tail_by_its_tree():
    of = case([3, 2], [5, 2], tail_masks=[tree_mask([None, 0, 0]), None])
    assert full_mask(of.plan, 0).int().tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 0, 1]]
    assert full_mask(of.plan, 1).int().tolist() == [[1, 0], [1, 1]]
