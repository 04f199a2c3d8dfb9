from dataclasses import replace

import pytest
import torch
from attention_case import (
    DIMS,
    EMBEDDED,
    GQA,
    KIMI,
    assert_close,
    case,
    cases,
    expansion,
    path,
    random_tree,
    tree_mask,
)
from hypothesis import given, settings

from deepdraft.infer.kernels import source, torch_backend
from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.dense import portable_attention
from deepdraft.infer.kernels.plan import AttentionPlan
from deepdraft.infer.kernels.torch_backend import TorchAttention

TORCH = TorchAttention()
LATENT = (EMBEDDED, KIMI)


@pytest.fixture(params=["fused", "portable"])
def backend(request, monkeypatch) -> TorchAttention:
    """With the kernel that this torch has, and as on a torch or a device without it."""
    if request.param == "portable":
        monkeypatch.setattr(torch_backend, "dense_attention", lambda _: portable_attention)
    return TorchAttention()


@pytest.fixture
def small_blocks(monkeypatch):
    """Short cases go through many blocks, splits and merges."""
    monkeypatch.setattr(source, "BLOCK_BYTES", 1 << 14)
    monkeypatch.setattr(source, "EXPANDED_LEN", 50)
    monkeypatch.setattr(torch_backend, "MIN_SPLIT_WORK", 0)
    monkeypatch.setattr(torch_backend, "MAX_HELD", 2000)


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@settings(deadline=None, max_examples=40)
@given(cases())
def test_any_mixture_of_requests_agrees_with_the_definition(of):
    assert_close(of.attend(TORCH), of.truth(), 2e-5)


@settings(deadline=None, max_examples=25)
@given(cases(dtype=torch.float64, max_len=120))
def test_float64_is_float64_all_through(of):
    found = of.attend(TORCH)
    assert (found.out.dtype, found.lse.dtype) == (torch.float64, torch.float64)
    assert_close(found, of.truth(), 1e-12)


@settings(deadline=None, max_examples=25)
@given(cases(dims=LATENT, max_len=200))
def test_expanded_latents_agree_with_the_definition(of):
    expanded = expansion(of)
    assert_close(expanded.attend(TORCH, of), expanded.truth(of), 2e-5)


@pytest.mark.usefixtures("small_blocks", "three_threads")
@pytest.mark.parametrize("is_shuffled", [False, True])
@pytest.mark.parametrize("page_size", [1, 3, 16, 64])
@pytest.mark.parametrize("dims", DIMS)
def test_many_blocks_and_threads_change_nothing(backend, dims, page_size, is_shuffled):
    of = case(
        [1, 1, 7, 120, 30],
        [700, 41, 500, 300, 30],
        dims=dims,
        page_size=page_size,
        is_shuffled=is_shuffled,
        tail_masks=[None, None, tree_mask(random_tree(7, 1)), None, tree_mask(random_tree(30, 2))],
    )
    assert_close(of.attend(backend), of.truth(), 2e-5)
    if dims.is_latent:
        expanded = expansion(of)
        assert_close(expanded.attend(backend, of), expanded.truth(of), 2e-5)


@pytest.mark.parametrize("cache_dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dims", [EMBEDDED, GQA])
def test_a_narrow_cache_is_read_into_a_float32_softmax(backend, dims, cache_dtype):
    of = case([1, 20, 1], [900, 600, 90], dims=dims, cache_dtype=cache_dtype)
    assert_close(of.attend(backend), of.truth(), 2e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_queries_get_narrow_results_rounded_once(dtype):
    of = case([1, 20], [900, 600], dtype=dtype)
    found = of.attend(TORCH)
    assert (found.out.dtype, found.lse.dtype) == (dtype, torch.float32)
    torch.testing.assert_close(found.out, of.truth().out.to(dtype), atol=1e-6, rtol=torch.finfo(dtype).eps)
    assert_close(Attended(found.lse, found.lse), Attended(*[of.truth().lse] * 2), 2e-5)


@pytest.mark.parametrize("kv_len", [12, 400, 5000])
def test_a_chain_shaped_tree_is_causal(kv_len):
    chain = case([12], [kv_len], tail_masks=[tree_mask([None, *range(11)])])
    assert_close(chain.attend(TORCH), chain.with_masks([None]).attend(TORCH), 1e-6)


@pytest.mark.parametrize("dims", [EMBEDDED, GQA])
@pytest.mark.parametrize("prefix_len", [0, 200, 4000])
def test_each_node_of_a_tree_sees_its_own_path_alone(dims, prefix_len):
    parents = random_tree(20, 5)
    of = case([20], [prefix_len + 20], dims=dims, page_size=1, is_shuffled=True, tail_masks=[tree_mask(parents)])
    found = of.attend(TORCH)
    pages = of.plan.pages[0]
    for node in (0, 7, 19):
        seen = [*pages[:prefix_len], *(pages[prefix_len + ancestor] for ancestor in path(parents, node))]
        alone = AttentionPlan.of(page_size=1, query_lens=[1], kv_lens=[len(seen)], pages=[seen])
        row = replace(of, queries=of.queries[node : node + 1], plan=alone).attend(TORCH)
        assert_close(Attended(found.out[node : node + 1], found.lse[node : node + 1]), row, 1e-5)


def test_expanded_is_absorbed():
    of = case([1, 9, 90], [300, 40, 90], dims=EMBEDDED, tail_masks=[None, tree_mask(random_tree(9, 3)), None])
    expanded = expansion(of)
    absorbed = expanded.absorbed(of).attend(TORCH)
    out = torch.einsum("thl,hvl->thv", absorbed.out, expanded.value_up)
    assert_close(expanded.attend(TORCH, of), Attended(out, absorbed.lse), 2e-5)


def test_what_shares_the_batch_does_not_change_a_request():
    """Its slots' neighbours are NaN, its companions' rows are 1e30: neither may leak in."""
    of = case([1, 3, 1], [60, 70, 50], page_size=16, is_shuffled=True)
    before = of.attend(TORCH)
    keys = of.layer.keys.clone()
    keys[of.plan.slots[1]] = 1e30
    changed = replace(of, layer=replace(of.layer, keys=keys, values=keys[..., :64])).attend(TORCH)
    for row in (0, 4):
        torch.testing.assert_close(changed.out[row], before.out[row], atol=0, rtol=0)


def test_queries_need_not_be_contiguous():
    of = case([1, 30], [400, 30])
    strided = of.queries.transpose(0, 1).contiguous().transpose(0, 1)
    assert not strided.is_contiguous()
    assert_close(replace(of, queries=strided).attend(TORCH), of.attend(TORCH), 0)


def test_what_was_worked_out_for_a_plan_goes_with_it():
    backend = TorchAttention()
    of = case([1, 1], [40, 9])
    of.attend(backend)
    of.attend(backend)
    assert len(backend._work) == 1
    del of
    assert len(backend._work) == 0


def test_layers_of_different_kinds_share_a_plan():
    """A drafter's layers have other heads and widths than the target's."""
    backend = TorchAttention()
    target = case([4, 4], [300, 320], dims=EMBEDDED)
    drafter = replace(case([4, 4], [300, 320], dims=GQA), plan=target.plan)
    for of in (target, drafter, target):
        assert_close(of.attend(backend), of.truth(), 2e-5)
