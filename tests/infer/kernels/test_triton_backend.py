from dataclasses import replace

import pytest
import torch
from attention_case import (
    EMBEDDED,
    GQA,
    KIMI,
    WIDE_KEYS,
    WIDE_VALUES,
    Dims,
    assert_close,
    case,
    cases,
    expansion,
    random_tree,
    tree_mask,
)
from hypothesis import given, settings
from interpreted import DEFAULT, FINE, WHY_SKIPPED, Interpreter, interpreter

from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kernels.reference import ReferenceAttention
from deepdraft.infer.kernels.triton.lists import Maxima
from deepdraft.infer.kernels.triton.tile import Splitting

if WHY_SKIPPED:
    pytest.skip(WHY_SKIPPED, allow_module_level=True)


ONE_HEAD = Dims(1, 1, 16, 16)


@pytest.fixture(scope="module")
def triton():
    with interpreter() as running:
        yield running


def test_it_is_the_kernels_that_are_tested(triton: Interpreter):
    """Not the torch back end, to which the Triton one leaves what it doesn't do."""
    assert triton._run(_counted_launches) == 1


def _counted_launches() -> int:
    from deepdraft.infer.kernels import triton_backend

    launches = []
    attend = triton_backend.attend

    def counted(*args, **kwargs):
        launches.append(kwargs["num_splits"])
        return attend(*args, **kwargs)

    triton_backend.attend = counted
    case([1], [9]).attend(triton_backend.TritonAttention("cpu"))
    triton_backend.attend = attend
    return len(launches)


@pytest.mark.parametrize(("dims", "page_size"), [(EMBEDDED, 1), (EMBEDDED, 16), (GQA, 3), (GQA, 64)])
def test_requests_of_all_kinds_agree_with_the_definition(triton, dims, page_size):
    """Decode, a tree, a chunk and a prompt; shuffled pages, and NaN wherever nothing was written."""
    of = case(
        [1, 7, 12, 9],
        [130, 50, 33, 9],
        dims=dims,
        page_size=page_size,
        is_shuffled=True,
        tail_masks=[None, tree_mask(random_tree(7, page_size)), None, None],
    )
    assert_close(triton.attend(of), of.truth(), 3e-6)


@pytest.mark.parametrize("dims", [KIMI, WIDE_KEYS, WIDE_VALUES])
def test_any_width_is_padded_to_what_the_kernel_multiplies(triton, dims):
    of = case([5, 1], [50, 20], dims=dims, is_shuffled=True, tail_masks=[tree_mask(random_tree(5, 3)), None])
    assert_close(triton.attend(of), of.truth(), 3e-6)


@settings(deadline=None, max_examples=4)
@given(of=cases(dims=(EMBEDDED, GQA), max_len=60))
def test_any_mixture_of_requests_agrees_with_the_definition(triton, of):
    assert_close(triton.attend(of), of.truth(), 5e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_queries_get_narrow_results(triton, dtype):
    of = case([1, 6], [90, 40], dtype=dtype, tail_masks=[None, tree_mask(random_tree(6, 4))])
    found, truth = triton.attend(of), of.truth()
    assert (found.out.dtype, found.lse.dtype) == (dtype, torch.float32)
    torch.testing.assert_close(found.out, truth.out.to(dtype), atol=1e-6, rtol=torch.finfo(dtype).eps)
    torch.testing.assert_close(found.lse.double(), truth.lse, atol=3e-6, rtol=0)


def test_a_narrow_cache_under_wide_queries_is_not_rounded_again(triton):
    of = case([1, 6], [90, 40], cache_dtype=torch.bfloat16)
    assert_close(triton.attend(of), of.truth(), 3e-6)


@pytest.mark.parametrize("num_nodes", [64, 130])
def test_masks_of_more_than_a_word(triton, num_nodes):
    of = case([num_nodes], [num_nodes + 20], dims=ONE_HEAD, tail_masks=[tree_mask(random_tree(num_nodes, 6))])
    assert_close(triton.attend(of), of.truth(), 3e-6)


def test_the_number_of_splits_changes_rounding_alone(triton):
    of = case([4], [150], page_size=16, is_shuffled=True, tail_masks=[tree_mask(random_tree(4, 2))])
    expected = triton.attend(of, Splitting(max_splits=1))
    for splitting in (DEFAULT, FINE, Splitting(programs_per_sm=100, min_split_len=1)):
        assert_close(triton.attend(of, splitting), expected, 2e-6)


@pytest.mark.parametrize("split", [FINE, DEFAULT])
def test_what_shares_the_batch_does_not_change_a_request(triton, split):
    """Its companions' rows are NaN: none may leak in."""
    of = case([1, 3, 1], [60, 70, 50], page_size=16, is_shuffled=True)
    before = triton.attend(of, split)
    keys = of.layer.keys.clone()
    keys[of.plan.slots[1]] = torch.nan
    changed = triton.attend(replace(of, layer=replace(of.layer, keys=keys, values=keys[..., :64])), split)
    for row in (0, 4):
        assert torch.equal(changed.out[row], before.out[row])


def test_prompts_are_left_to_torch_and_their_companions_are_not(triton):
    of = case([1, 300, 3], [40, 320, 30], dims=GQA)
    assert_close(triton.attend(of), of.truth(), 2e-5)


def test_expanded_latents_agree_with_the_definition(triton):
    of = case([1, 9], [40, 30], dims=EMBEDDED)
    expanded = expansion(of)
    assert_close(triton._run(_attend_expanded, expanded, of), expanded.truth(of), 2e-5)


def _attend_expanded(expanded, of):
    from deepdraft.infer.kernels.triton_backend import TritonAttention

    return expanded.attend(TritonAttention("cpu"), of)


def test_float64_is_float64_all_through(triton):
    of = case([1, 9], [40, 30], dtype=torch.float64)
    assert_close(triton.attend(of), of.truth(), 1e-12)


def test_queries_need_not_be_contiguous(triton):
    of = case([1, 5], [40, 5])
    strided = of.queries.transpose(0, 2).contiguous().transpose(0, 2)
    assert strided.stride(2) != 1
    assert_close(triton.attend(replace(of, queries=strided)), triton.attend(of), 0)


def test_slots_beyond_32_bit_offsets_are_found(triton):
    """Numbers 2^31 and more from the start of the pool, of which only the last pages are ever touched."""
    of = case([2], [20], page_size=16, cache_dtype=torch.float16)
    num_slots = (1 << 31) // 80 // 16 * 16 + 1600
    assert_close(triton.attend_far(of, num_slots), of.truth(), 3e-6)


def test_lists_of_fixed_maxima_follow_what_is_loaded(triton):
    """As a CUDA graph uses them: same memory and grid, other plans; rows that are no one's are 0."""
    tree = tree_mask(random_tree(6, 9))
    of = case([6, 1, 3], [70, 33, 12], page_size=4, is_shuffled=True, tail_masks=[tree, None, None])
    first, second = (_some(of.plan, requests) for requests in ((0, 1), (2,)))
    maxima = Maxima(num_requests=4, num_rows=10, query_len=8, kv_len=100, num_pages=40)
    queries = torch.cat([of.queries, of.queries[:0]])
    assert len(queries) == maxima.num_rows
    results = triton.attend_loaded(of, maxima, [first, second, first])
    for plan, found in zip((first, second, first), results, strict=True):
        num_rows = sum(plan.query_lens)
        expected = ReferenceAttention().attend(queries[:num_rows].double(), of.layer, plan, scale=of.scale)
        assert_close(type(found)(found.out[:num_rows], found.lse[:num_rows]), expected, 3e-6)
        assert (found.out[num_rows:] == 0).all()
        assert (found.lse[num_rows:] == float("-inf")).all()


def _some(plan: AttentionPlan, requests) -> AttentionPlan:
    return AttentionPlan.of(
        page_size=plan.page_size,
        query_lens=[plan.query_lens[r] for r in requests],
        kv_lens=[plan.kv_lens[r] for r in requests],
        pages=[plan.pages[r] for r in requests],
        tail_masks=[plan.tail_masks[r] for r in requests],
    )
