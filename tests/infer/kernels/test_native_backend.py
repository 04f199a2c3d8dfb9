from dataclasses import replace

import pytest
import torch
from attention_case import (
    DIMS,
    EMBEDDED,
    GQA,
    KIMI,
    Case,
    Dims,
    assert_close,
    case,
    cases,
    expansion,
    path,
    random_tree,
    tree_mask,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.errors import UsageError
from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.native import library
from deepdraft.infer.kernels.native_backend import NativeAttention, missing
from deepdraft.infer.kernels.plan import AttentionPlan

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no native attention: {missing()}")

LATENT = (EMBEDDED, KIMI)
ONE_HEAD = Dims(1, 1, 64 + 16, 64, is_latent=True)
ODD = Dims(5, 5, 7, 33)
MANY_HEADS = Dims(16, 1, 32, 32)
DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SETS = ("portable",) if missing() else library.instruction_sets(library.load())
BACKENDS = {
    (one, num): NativeAttention(num_threads=num, instruction_set=one)
    for one in SETS
    for num in (1, 2, 3, 4)
    if missing() is None
}
NATIVE = BACKENDS.get((SETS[0], 1))


@st.composite
def native_cases(draw: st.DrawFn) -> Case:
    """Up to 64 rows and more, chains and trees, any page size, every cache."""
    seed = draw(st.integers(0, 1 << 16))
    kv_lens, query_lens, masks = [], [], []
    for number in range(draw(st.integers(1, 4))):
        kv_lens.append(draw(st.integers(1, 700)))
        query_lens.append(draw(st.integers(1, min(kv_lens[-1], 64))))
        is_tree = draw(st.booleans())
        masks.append(tree_mask(random_tree(query_lens[-1], seed + number)) if is_tree else None)
    return case(
        query_lens,
        kv_lens,
        dims=draw(st.sampled_from((*DIMS, ONE_HEAD, ODD, MANY_HEADS))),
        page_size=draw(st.integers(1, 64)),
        is_shuffled=draw(st.booleans()),
        tail_masks=masks,
        cache_dtype=draw(st.sampled_from(DTYPES)),
        seed=seed,
    )


@settings(deadline=None, max_examples=80)
@given(native_cases(), st.sampled_from(SETS), st.integers(1, 4))
def test_any_rows_pages_dtypes_and_threads_agree_with_the_definition(of, instruction_set, num_threads):
    assert_close(of.attend(BACKENDS[instruction_set, num_threads]), of.truth(), 2e-5)


@settings(deadline=None, max_examples=40)
@given(cases(), st.sampled_from(SETS))
def test_decode_trees_chunks_and_prompts_mixed_agree_with_the_definition(of, instruction_set):
    assert_close(of.attend(BACKENDS[instruction_set, 1]), of.truth(), 2e-5)


@settings(deadline=None, max_examples=25)
@given(cases(dims=LATENT, max_len=200))
def test_expanded_latents_agree_with_the_definition(of):
    expanded = expansion(of)
    assert_close(expanded.attend(NATIVE, of), expanded.truth(of), 2e-5)


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("dims", [EMBEDDED, GQA])
def test_threads_change_rounding_alone(dims, instruction_set):
    """Long enough that the tokens of one request are split."""
    of = case([1, 3, 20], [9000, 5000, 3000], dims=dims, tail_masks=[None, None, tree_mask(random_tree(20, 1))])
    alone = of.attend(BACKENDS[instruction_set, 1])
    for num_threads in (2, 3, 4):
        assert_close(of.attend(BACKENDS[instruction_set, num_threads]), alone, 2e-6)
    assert_close(alone, of.truth(), 2e-5)


def test_own_threads_do_what_openmps_do(monkeypatch):
    monkeypatch.setattr(library, "_gomp_parallel", lambda: None)
    backend = NativeAttention(num_threads=3)
    for seed in range(20):
        of = case([1, 3, 1], [9000, 5000, 40], seed=seed)
        assert_close(of.attend(backend), of.attend(NATIVE), 2e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dims", [EMBEDDED, GQA])
def test_narrow_queries_get_narrow_results_rounded_once(dims, dtype):
    of = case([1, 20], [900, 600], dims=dims, dtype=dtype)
    found = of.attend(NATIVE)
    assert (found.out.dtype, found.lse.dtype) == (dtype, torch.float32)
    torch.testing.assert_close(found.out, of.truth().out.to(dtype), atol=1e-6, rtol=torch.finfo(dtype).eps)
    assert_close(Attended(found.lse, found.lse), Attended(*[of.truth().lse] * 2), 2e-5)


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, -65504.0, 2.0**-14, 2.0**-24, 3 * 2.0**-24, float("inf")])
def test_every_kind_of_float16_number_is_read_as_it_is(number, instruction_set):
    """One key: the output is its value."""
    of = case([1], [1], dims=Dims(1, 1, 16, 16), cache_dtype=torch.float16)
    of.layer.values[of.plan.slots[0]] = number
    for num_rows in (1, 20):
        rows = replace(of, queries=of.queries.repeat(1, num_rows, 1))
        assert (rows.attend(BACKENDS[instruction_set, 1]).out == number).all()


def test_float64_is_float64_all_through():
    of = case([1, 9], [300, 40], dtype=torch.float64)
    found = of.attend(NATIVE)
    assert (found.out.dtype, found.lse.dtype) == (torch.float64, torch.float64)
    assert_close(found, of.truth(), 1e-12)


@pytest.mark.parametrize("dims", [EMBEDDED, GQA])
@pytest.mark.parametrize("prefix_len", [0, 200, 1300])
def test_each_node_of_a_tree_sees_its_own_path_alone(dims, prefix_len):
    parents = random_tree(20, 5)
    of = case([20], [prefix_len + 20], dims=dims, page_size=1, is_shuffled=True, tail_masks=[tree_mask(parents)])
    found = of.attend(NATIVE)
    pages = of.plan.pages[0]
    for node in (0, 7, 19):
        seen = [*pages[:prefix_len], *(pages[prefix_len + ancestor] for ancestor in path(parents, node))]
        alone = AttentionPlan.of(page_size=1, query_lens=[1], kv_lens=[len(seen)], pages=[seen])
        row = replace(of, queries=of.queries[node : node + 1], plan=alone).attend(NATIVE)
        assert_close(Attended(found.out[node : node + 1], found.lse[node : node + 1]), row, 1e-5)


def test_neither_unwritten_slots_nor_a_sibling_branch_leak_in():
    """Slots' neighbours are NaN, a hidden node's keys and values huge."""
    of = case([1, 3, 1], [60, 70, 50], dims=GQA, is_shuffled=True, tail_masks=[None, tree_mask([None, 0, 0]), None])
    before = of.attend(NATIVE)
    of.layer.values[of.plan.slots[1][-1]] = 1e30
    of.layer.keys[of.plan.slots[1][-1]] = 1e30
    changed = of.attend(NATIVE)
    for row in (0, 1, 2, 4):
        torch.testing.assert_close(changed.out[row], before.out[row], atol=0, rtol=0)


def test_a_nan_that_was_written_is_seen():
    of = case([1, 1], [200, 90])
    of.layer.keys[of.plan.slots[0][150], 0, 3] = torch.nan
    found = of.attend(NATIVE)
    assert found.out[0].isnan().all() and found.lse[0].isnan().all()
    assert found.out[1].isfinite().all()


@pytest.mark.parametrize("size", [30.0, 1e4])
def test_scores_far_apart_neither_overflow_nor_vanish(size):
    of = case([1, 20], [900, 600])
    of = replace(of, queries=of.queries * size)
    truth, found = of.truth(), of.attend(NATIVE)
    torch.testing.assert_close(found.lse.double(), truth.lse, atol=0, rtol=1e-6)
    torch.testing.assert_close(found.out.double(), truth.out, atol=2e-6 * size, rtol=0)


def test_queries_need_not_be_contiguous():
    of = case([1, 30], [400, 30])
    strided = of.queries.transpose(0, 1).contiguous().transpose(0, 1)
    assert not strided.is_contiguous()
    assert_close(replace(of, queries=strided).attend(NATIVE), of.attend(NATIVE), 0)


def test_what_was_listed_for_a_plan_goes_with_it():
    backend = NativeAttention(num_threads=1)
    of = case([1, 1], [40, 9])
    of.attend(backend)
    of.attend(backend)
    assert len(backend._lists) == 1
    del of
    assert len(backend._lists) == 0


def test_threads_follow_torchs_unless_a_number_is_given():
    before = torch.get_num_threads()
    of, backend = case([1], [3000]), NativeAttention()
    try:
        for num_threads in (2, 1, 2):
            torch.set_num_threads(num_threads)
            assert_close(of.attend(backend), of.truth(), 2e-5)
        assert [(num, threads.num_threads) for num, threads in backend._threads.items()] == [(2, 2), (1, 1)]
    finally:
        torch.set_num_threads(before)


def test_another_device_is_refused():
    with pytest.raises(UsageError, match="not on cuda"):
        NativeAttention("cuda")


def test_an_instruction_set_that_is_not_there_is_refused():
    with pytest.raises(UsageError, match="'sse9'") as refused:
        NativeAttention(instruction_set="sse9")
    assert "portable" in (refused.value.hint or "")
