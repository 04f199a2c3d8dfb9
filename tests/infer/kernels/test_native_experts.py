from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
import torch
from feed_forward_case import Case, case, shape_of
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepdraft.infer.kernels import native_experts
from deepdraft.infer.kernels.native import library
from deepdraft.infer.kernels.native_backend import missing
from deepdraft.infer.kernels.native_experts import MlpWeights, RouterWeights, can_read, native_feed_forward

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"no native library: {missing()}")

SETS = ("portable",) if missing() else library.instruction_sets(library.load())
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@contextmanager
def threads(number: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def assert_close(found: Tensor, truth: Tensor) -> None:
    size = truth.abs().max().item()
    torch.testing.assert_close(found.double(), truth, rtol=torch.finfo(found.dtype).eps, atol=3e-6 * (1 + size))


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Any groups and widths, few rows and many, up to eight experts a row."""
    num_groups, group_size = draw(st.integers(1, 4)), draw(st.integers(2, 6))
    num_groups_per_tok = draw(st.integers(1, num_groups))
    shape = shape_of(
        num_groups * group_size,
        draw(st.integers(1, min(8, num_groups_per_tok * group_size))),
        num_groups=num_groups,
        num_groups_per_tok=num_groups_per_tok,
        norm_topk_prob=draw(st.booleans()),
    )
    return case(
        shape if draw(st.integers(0, 4)) else None,
        draw(st.one_of(st.integers(1, 8), st.integers(9, 80))),
        hidden=draw(st.integers(1, 70)),
        inner=draw(st.integers(1, 40)),
        shared_inner=draw(st.integers(1, 80)),
        dtype=draw(st.sampled_from(DTYPES)),
        seed=draw(st.integers(0, 1 << 16)),
    )


@settings(deadline=None, max_examples=120)
@given(cases(), st.sampled_from(SETS), st.booleans(), st.booleans())
def test_any_rows_widths_groups_and_dtypes_agree_with_float64(of, instruction_set, has_shared, has_wide_rows):
    if of.router is not None and not has_shared:
        of = replace(of, shared=None)
    if has_wide_rows:
        of = replace(of, x=of.x.float())
    assume(of.least_gap() > 1e-5)
    found = of.native(instruction_set)(of.x)
    assert found.dtype == of.x.dtype
    assert_close(found, of.truth())


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("num_rows", [17, 300])
def test_neither_other_rows_nor_threads_change_a_row(instruction_set, num_rows):
    """To the last bit: so a row of a tree's pass is that of plain decoding."""
    of = case(shape_of(), num_rows)
    native = of.native(instruction_set)
    with threads(1):
        alone = torch.cat([native(row[None]) for row in of.x])
        assert torch.equal(native(of.x), alone)
    for number in (2, 3):
        with threads(number):
            assert torch.equal(native(of.x), alone)
    assert_close(alone, of.truth())


def test_a_plain_mlp_is_split_among_threads_too():
    of = case(None, 9, hidden=200, shared_inner=1000)
    with threads(1):
        alone = of.native()(of.x)
    with threads(3):
        assert torch.equal(of.native()(of.x), alone)
    assert_close(alone, of.truth())


@pytest.mark.parametrize("num_chosen", range(1, 9))
def test_of_equal_experts_those_with_the_lower_numbers_are_chosen(num_chosen):
    of = case(shape_of(12, num_chosen), 3, hidden=20, inner=10, shared_inner=None)
    router = RouterWeights(shape_of(12, num_chosen), torch.zeros(12, 20), torch.zeros(12))
    found = replace(of, router=router).native()(of.x)
    first = [case_of_mlp.truth() for case_of_mlp in (Case(mlp, None, (), of.x) for mlp in of.experts[:num_chosen])]
    assert_close(found, 2.5 * torch.stack(first).mean(0))


def test_of_equal_groups_those_with_the_lower_numbers_are_open():
    shape = shape_of(12, 2, num_groups=4, num_groups_per_tok=2)
    of = case(shape, 3, hidden=20, inner=10, shared_inner=None)
    bias = torch.zeros(12)
    bias[11] = 0.5  # the last group is the best one; of the other three, the first
    found = replace(of, router=RouterWeights(shape, torch.zeros(12, 20), bias)).native()(of.x)
    both = [Case(of.experts[expert], None, (), of.x).truth() for expert in (0, 11)]
    assert_close(found, 2.5 * torch.stack(both).mean(0))


def test_all_rows_at_one_expert():
    of = case(shape_of(16, 1), 50)
    bias = torch.zeros(16)
    bias[5] = 100.0
    of = replace(of, router=RouterWeights(of.router.shape, of.router.weight, bias))
    assert_close(of.native()(of.x), of.truth())


@pytest.mark.parametrize("num_rows", [1, 3])
def test_experts_that_nobody_chose_are_not_computed(num_rows):
    """Their weights are NaN, as a page that was never touched could be."""
    of = case(shape_of(), num_rows)
    router = of.layer(torch.float64).router
    chosen = set(router(of.x.double())[0].flatten().tolist())
    nan = MlpWeights(torch.full((192, 192), math.nan), torch.full((192, 96), math.nan))
    poisoned = replace(of, experts=tuple(mlp if i in chosen else nan for i, mlp in enumerate(of.experts)))
    assert len(chosen) < 16
    assert torch.equal(poisoned.native()(of.x), of.native()(of.x))


@pytest.mark.parametrize("instruction_set", SETS)
def test_a_row_of_nan_stays_alone(instruction_set):
    of = case(shape_of(num_groups=4, num_groups_per_tok=2), 9)
    before = of.native(instruction_set)(of.x)
    of.x[4] = math.nan
    found = of.native(instruction_set)(of.x)
    assert found[4].isnan().all()
    others = [row for row in range(9) if row != 4]
    assert torch.equal(found[others], before[others])


@pytest.mark.parametrize("instruction_set", SETS)
@pytest.mark.parametrize("size", [30.0, 1e4, 1e8])
def test_gates_and_scores_far_from_zero_neither_overflow_nor_vanish(instruction_set, size):
    """Scores that are exactly 1 leave the choice to the bias."""
    of = case(shape_of(norm_topk_prob=False), 12)
    of = replace(of, x=of.x * size)
    bias = torch.arange(16) * 2.0
    of = replace(of, router=RouterWeights(of.router.shape, of.router.weight, bias))
    found = of.native(instruction_set)(of.x)
    assert found.isfinite().all()
    assert_close(found, of.truth())


def test_scores_of_zero_have_a_finite_quotient():
    of = case(shape_of(), 2)
    weight = torch.full((16, 192), -10.0)
    of = replace(of, router=RouterWeights(of.router.shape, weight, torch.zeros(16)), x=torch.ones(2, 192))
    assert torch.equal(of.native()(of.x), Case(of.shared, None, (), of.x).native()(of.x))


def test_the_input_is_left_as_it_was_and_weights_are_not_copied():
    of = case(shape_of(), 3)
    native, before = of.native(), of.x.clone()
    first = native(of.x)
    assert torch.equal(of.x, before)
    of.shared.down.zero_()
    assert_close(native(of.x), of.truth())
    assert not torch.equal(native(of.x), first)


def test_rows_that_are_not_for_it():
    x = torch.ones(3, 192)
    native = case(shape_of(), 1).native()
    assert native.takes(x)
    assert native.takes(torch.ones(max(native_experts.MOST_ROWS[SETS[0]], 1), 192))
    assert not native.takes(torch.ones(native_experts.MOST_ROWS[SETS[0]] + 1, 192))
    assert not native.takes(x[:0])
    assert not native.takes(x.double())
    assert not native.takes(x.bfloat16())
    narrow = case(shape_of(), 1, dtype=torch.bfloat16).native()
    assert narrow.takes(x)
    assert narrow.takes(x.bfloat16())
    assert not narrow.takes(x.half())
    assert not native.takes(torch.ones(192, 3).T)
    assert not native.takes(x[None])
    assert not native.takes(torch.ones(3, 193))
    assert not native.takes(x.to("meta"))
    assert not native.takes(torch.ones(3, 192, requires_grad=True))


def test_weights_that_it_does_not_read():
    of = case(shape_of(4, 2), 1, hidden=8, inner=4, shared_inner=4)
    shared, router, experts = of.shared, of.router, of.experts
    assert can_read(shared, router, experts)
    assert can_read(None, router, experts)
    assert can_read(shared, None, ())
    assert not can_read(None, None, ())
    assert not can_read(shared, None, experts)
    assert not can_read(shared, router, experts[:3])
    assert not can_read(MlpWeights(shared.gate_up.double(), shared.down.double()), None, ())
    assert not can_read(MlpWeights(shared.gate_up, shared.down.bfloat16()), None, ())
    assert not can_read(MlpWeights(shared.gate_up, shared.down.to("meta")), None, ())
    assert not can_read(MlpWeights(shared.gate_up, torch.ones(4, 8).T), None, ())
    assert not can_read(MlpWeights(shared.gate_up, shared.down.clone().requires_grad_()), None, ())
    assert not can_read(shared, replace(router, weight=router.weight.double()), experts)
    assert not can_read(shared, replace(router, weight=router.weight[:, 1:].contiguous()), experts)
    assert not can_read(shared, replace(router, selection_bias=router.selection_bias[:3]), experts)
    assert not can_read(MlpWeights(shared.gate_up[1:], shared.down), router, experts)
    narrower = case(None, 1, hidden=8, shared_inner=2).shared
    assert can_read(narrower, router, experts)
    assert not can_read(shared, router, (narrower, *experts[1:]))
    assert not can_read(case(None, 1, hidden=9, shared_inner=4).shared, router, experts)
    assert not can_read(shared, replace(router, shape=shape_of(4, 5)), experts)


def test_without_the_library_there_is_none(monkeypatch):
    of = case(None, 1)
    assert native_feed_forward(of.shared) is not None

    def not_built():
        raise library.NotBuilt("it was not built with the package")

    monkeypatch.setattr(native_experts, "load", not_built)
    assert native_feed_forward(of.shared) is None


def test_the_structure_is_as_wide_as_in_c():
    """Six addresses, nine numbers, the scale: nothing is padded."""
    assert ctypes.sizeof(library.Experts) == 6 * 8 + 10 * 4
