"""Attention's cases: every combination once, the back end right, peers of the same task, refusals beforehand."""

from __future__ import annotations

import pytest
import torch

from deepdraft.errors import UsageError
from deepdraft.infer.components.attention import (
    EMBEDDED,
    KIMI,
    ONE_RUN,
    Kind,
    Layer,
    binary_tree,
    plan_of,
)
from deepdraft.infer.components.kernels import KernelSettings, backends_here, kernel_cases
from deepdraft.infer.components.turns import Timing, Watch
from deepdraft.infer.kernels.reference import ReferenceAttention
from deepdraft.infer.kernels.torch_backend import TorchAttention

CPU = torch.device("cpu")


def test_every_combination_is_a_case(brief: Timing) -> None:
    told: list[str] = []
    settings = KernelSettings(
        context_lens=(70, 40), row_counts=(1, 8), page_sizes=(1, 16), dims=("embedded",), timing=brief
    )
    cases = list(kernel_cases(settings, Watch(report=told.append)))
    assert len(cases) == 8
    assert len({case.name for case in cases}) == 8
    assert told == [case.name for case in cases]
    assert {case.facts["backend"] for case in cases} == {backends_here(CPU)[0]}
    for case in cases:
        expected = {"torch", "sdpa", "one run"} - {case.facts["backend"]}
        assert all(set(repeat.peers_s) == expected for repeat in case.repeats)
        assert all(set(repeat.rates) == {"copy", "matmul"} for repeat in case.repeats)
        assert case.work["copy"] == case.facts["context_len"] * 80 * 4


def test_a_cache_of_half_the_bytes(brief: Timing) -> None:
    settings = KernelSettings(context_lens=(40,), row_counts=(8,), dims=("embedded",), dtype="bfloat16", timing=brief)
    (case,) = kernel_cases(settings, Watch())
    assert (case.facts["kv_dtype"], case.work["copy"]) == ("bfloat16", 40 * 80 * 2)


def test_rows_are_heads_times_nodes() -> None:
    layer = Layer(TorchAttention(), KIMI, torch.zeros(512, 1, 576))
    for num_rows, num_heads, num_nodes in ((1, 1, 1), (8, 8, 1), (64, 8, 8)):
        shaped, kind = layer.shaped(num_rows)
        assert (shaped.dims.num_heads, kind.num_queries, kind.is_tree) == (num_heads, num_nodes, num_nodes > 1)


def test_rows_that_are_no_whole_nodes_are_refused_before_anything_runs(brief: Timing) -> None:
    with pytest.raises(UsageError, match="7 rows aren't whole nodes"):
        kernel_cases(KernelSettings(row_counts=(1, 7), timing=brief), Watch())


def test_a_back_end_that_is_not_here_is_refused_before_anything_runs(brief: Timing) -> None:
    with pytest.raises(UsageError, match="triton"):
        kernel_cases(KernelSettings(backends=("triton",), timing=brief), Watch())


@pytest.mark.parametrize("page_size", [ONE_RUN, 1, 16])
def test_what_is_measured_is_attention(page_size: int) -> None:
    torch.manual_seed(0)
    rows = torch.randn(300, 1, EMBEDDED.row_dim)
    kind, plan = Kind("tree", 4, is_tree=True), plan_of(Kind("tree", 4, is_tree=True), 40, page_size)
    queries = torch.randn(4, EMBEDDED.num_heads, EMBEDDED.row_dim)
    layer = Layer(TorchAttention(), EMBEDDED, rows)
    found = TorchAttention().attend(queries, layer.cache(plan.page_size), plan, scale=0.1)
    expected = ReferenceAttention().attend(queries.double(), layer.cache(plan.page_size), plan, scale=0.1)
    torch.testing.assert_close(found.out.double(), expected.out, rtol=1e-4, atol=1e-4)
    assert kind.operations(EMBEDDED, 40) == 2 * 4 * 4 * (40 - 2) * (80 + 64)


def test_a_node_sees_itself_and_those_above_it() -> None:
    seen = binary_tree(7)
    assert seen.diagonal().all()
    assert seen[6].nonzero().flatten().tolist() == [0, 2, 6]
    assert not seen.triu(1).any()
