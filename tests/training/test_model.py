"""The two inner loops of training give what transformers' own give, forward and backward."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from training.embedded.model import model_config, routers, switch_positions, training_model
from training.embedded.recipe import yarn_softmax_scale
from transformers import DeepseekV3ForCausalLM
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

TINY: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
    "initializer_range": 0.1,
}


@pytest.mark.parametrize("tokens_len", [7, 128, 300])
def test_loops_equal_transformers(tokens_len: int) -> None:
    fast = training_model(0, **TINY)
    plain = DeepseekV3ForCausalLM(model_config(is_yarn=True, **TINY))
    switch_positions(fast, is_yarn=True)
    plain.load_state_dict(copy.deepcopy(fast.state_dict()))
    tokens = torch.randint(0, 64, (2, tokens_len), generator=torch.Generator().manual_seed(0))
    losses = [model(input_ids=tokens, labels=tokens, use_cache=False).loss for model in (fast, plain)]
    assert losses[0].item() == pytest.approx(losses[1].item(), abs=1e-5)
    for loss in losses:
        torch.autograd.backward(loss)
    for (name, one), (_, other) in zip(fast.named_parameters(), plain.named_parameters(), strict=True):
        assert one.grad is not None and other.grad is not None
        assert torch.allclose(one.grad, other.grad, atol=1e-5), name


def test_softmax_scale_holds_from_the_start_and_through_the_switch() -> None:
    model = training_model(0, **TINY)
    before = model.model.rotary_emb.inv_freq.clone()
    switch_positions(model, is_yarn=True)
    scales = {module.scaling for module in model.modules() if isinstance(module, DeepseekV3Attention)}
    assert scales == {yarn_softmax_scale()}
    after = model.model.rotary_emb.inv_freq
    assert after[0] == before[0]
    assert after[-1] == pytest.approx(before[-1].item() / 256)
    switch_positions(model, is_yarn=False)
    assert torch.equal(model.model.rotary_emb.inv_freq, before)


def test_same_seed_same_weights() -> None:
    one, other = training_model(7, **TINY), training_model(7, **TINY)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert len(list(routers(one))) == 1
