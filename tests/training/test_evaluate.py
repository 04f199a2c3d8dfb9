"""Losses against sums by hand, the baselines against known truth, and the judging of written code."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional
from training.embedded.baseline import BigramModel, compressed_bits_per_byte
from training.embedded.evaluate import HeldOutLoss, first_block, has_body, held_out_loss, is_python, loss_by_position
from training.embedded.model import training_model

TINY: dict[str, Any] = {
    "vocab_size": 32,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "n_routed_experts": 4,
}


def test_loss_is_the_mean_over_full_sequences() -> None:
    model = training_model(0, **TINY).train(False)
    tokens = torch.randint(0, 32, (30,), generator=torch.Generator().manual_seed(0))
    result = held_out_loss(model, tokens, 8)
    assert result.num_tokens == 24
    with torch.no_grad():
        parts = [
            functional.cross_entropy(model(input_ids=tokens[None, at : at + 8]).logits[0], tokens[at + 1 : at + 9])
            for at in (0, 8, 16)
        ]
    assert result.nats_per_token == pytest.approx(sum(part.item() for part in parts) / 3, abs=1e-5)
    with pytest.raises(ValueError, match="do not fill"):
        held_out_loss(model, tokens, 30)


def test_positions_add_up_to_the_whole() -> None:
    model = training_model(0, **TINY).train(False)
    tokens = torch.randint(0, 32, (33,), generator=torch.Generator().manual_seed(0))
    whole = held_out_loss(model, tokens, 16)
    spans = loss_by_position(model, tokens, 16, (0, 4, 16))
    assert [(span, loss.num_tokens) for span, loss in spans.items()] == [((0, 4), 8), ((4, 16), 24)]
    weighted = sum(loss.nats_per_token * loss.num_tokens for loss in spans.values()) / 32
    assert weighted == pytest.approx(whole.nats_per_token, abs=1e-5)


def test_bits_per_byte() -> None:
    assert HeldOutLoss(math.log(2), 1).bits_per_byte(tokens_per_byte=0.25) == pytest.approx(0.25)


def test_bigram_probabilities_add_up_to_one_and_prefer_what_was_seen() -> None:
    model = BigramModel([[1, 2, 1, 2, 3], [2, 1]], vocab_size=5)
    for previous in range(5):
        assert sum(model.probability(previous, token) for token in range(5)) == pytest.approx(1.0)
    assert model.probability(1, 2) > model.probability(1, 3) > 0
    assert model.nats_per_token([1, 2, 1, 2]) < math.log(5)


def test_compressor_gains_from_what_it_knows() -> None:
    text = bytes(range(256)) * 2
    assert compressed_bits_per_byte(text, known=text * 4) < compressed_bits_per_byte(text) / 4


@pytest.mark.parametrize(
    ("text", "verdict"), [("x = 1\n", True), ("def f(:\n", False), ("", False), ("x\0", False), ("  \n", False)]
)
def test_is_python(text: str, verdict: bool) -> None:
    assert is_python(text) is verdict


@pytest.mark.parametrize(
    ("code", "verdict"),
    [
        ('def f():\n    """Say."""\n    return 1\n', True),
        ("def f():\n    return 1\n", True),
        ('def f():\n    """Say."""\n', False),
        ('def f():\n    """Say."""\n    return (\n', False),
        ("x = 1\n", False),
    ],
)
def test_has_body(code: str, verdict: bool) -> None:
    assert has_body(code) is verdict


def test_first_block_ends_where_indentation_ends() -> None:
    code = "def f(\n    x,\n):\n    return x\n\n\nclass B:\n    pass\n"
    assert first_block(code).rstrip() == "def f(\n    x,\n):\n    return x"
    assert first_block("def f():\n    return (") == "def f():\n    return ("
