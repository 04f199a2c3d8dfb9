"""The layer that is measured is the product's, right, and no larger than the memory it was given."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepdraft.errors import DeepdraftError
from deepdraft.infer.components import moe
from deepdraft.infer.components.moe import MoeSettings, embedded_layer, moe_cases, scaled_kimi_layer
from deepdraft.infer.components.moe_weights import MoeLayer, expert_bytes
from deepdraft.infer.components.turns import Timing, Watch
from deepdraft.infer.config import MoeShape

SMALL = MoeLayer(
    16,
    MoeShape(
        num_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=8,
        num_shared_experts=1,
        num_groups=1,
        num_groups_per_tok=1,
        norm_topk_prob=True,
        routed_scaling_factor=2.0,
        num_dense_layers=0,
    ),
)


@pytest.mark.parametrize("num_rows", [1, 8, 17])
def test_ours_and_the_loop_agree(num_rows: int) -> None:
    x = torch.randn(num_rows, 16)
    with torch.inference_mode():
        torch.testing.assert_close(SMALL.ours()(x), SMALL.torch_loop()(x), rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_ours_and_transformers_agree() -> None:
    theirs = SMALL.transformers()
    assert theirs is not None
    x = torch.randn(5, 16)
    with torch.inference_mode():
        torch.testing.assert_close(SMALL.ours()(x), theirs(x), rtol=1e-4, atol=1e-5)


def test_a_weight_is_a_function_of_its_name() -> None:
    name = "model.layers.0.mlp.experts.3.up_proj.weight"
    assert torch.equal(SMALL.tensor(name), SMALL.tensor(name))
    assert not torch.equal(SMALL.tensor(name), SMALL.tensor(name.replace("3", "4")))


def test_cases_of_the_embedded_shape(brief: Timing) -> None:
    cases = list(moe_cases(MoeSettings(row_counts=(1, 4), shapes=("embedded",), timing=brief), Watch()))
    assert [case.name for case in cases] == ["embedded, 1 rows", "embedded, 4 rows"]
    one = cases[0]
    layer = embedded_layer()
    hit = one.facts["num_experts_hit"]
    assert hit == layer.shape.num_experts_per_tok
    assert one.work["read"] == (hit + 1) * layer.expert_bytes + layer.shape.num_experts * layer.hidden_size * 4
    assert cases[1].work["matmul"] == 4 * one.work["matmul"]
    assert "torch loop" in one.repeats[0].peers_s


def test_a_wrong_peer_is_told_before_anything_is_measured(brief: Timing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moe, "embedded_layer", lambda: SMALL)
    monkeypatch.setattr(MoeLayer, "torch_loop", lambda _: lambda x: x)
    told: list[str] = []
    cases = moe_cases(MoeSettings(row_counts=(1,), shapes=("embedded",), timing=brief), Watch(report=told.append))
    with pytest.raises(DeepdraftError, match="off torch loop's"):
        next(cases)
    assert told == ["embedded: random weights"]


@settings(deadline=None)
@given(st.integers(1 << 22, 1 << 38))
def test_a_scaled_layer_fits(max_bytes: int) -> None:
    layer = scaled_kimi_layer(max_bytes)
    shape = layer.shape
    assert shape.num_experts * expert_bytes(layer.hidden_size, shape.moe_intermediate_size) <= max_bytes
    assert moe.MIN_EXPERTS <= shape.num_experts <= 384
    assert layer.hidden_size * 2048 == shape.moe_intermediate_size * 7168
    assert shape.num_experts_per_tok == 8


def test_with_enough_memory_it_is_kimi_itself() -> None:
    layer = scaled_kimi_layer(1 << 37)
    assert (layer.hidden_size, layer.shape.moe_intermediate_size, layer.shape.num_experts) == (7168, 2048, 384)
