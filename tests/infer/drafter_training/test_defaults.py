"""A drafter's shape where nothing is said, and what a target is asked for."""

from __future__ import annotations

import pytest

from deepdraft.errors import UsageError
from deepdraft.infer.drafter_training.defaults import default_target_layers, drafter_shape
from deepdraft.infer.drafter_training.target import EMBEDDED, Target, load_target


@pytest.fixture(scope="module")
def embedded() -> Target:
    return load_target(EMBEDDED)


def test_the_embedded_models_drafter(embedded: Target) -> None:
    shape = drafter_shape(embedded)
    assert (shape.hidden_size, shape.vocab_size, shape.num_target_layers) == (192, 4096, 6)
    assert (shape.num_heads, shape.num_kv_heads, shape.head_dim, shape.intermediate_size) == (6, 2, 32, 512)
    assert (shape.target_layers, shape.block_size, shape.num_layers) == ((0, 1, 2, 3, 4), 8, 3)
    assert embedded.tokenizer.token_text(shape.mask_token_id) == "<|mask|>"
    assert shape.draft_len == 7


@pytest.mark.parametrize(
    ("num_layers", "layers"),
    [
        (1, (0,)),
        (2, (0,)),
        (6, (0, 1, 2, 3, 4)),
        (36, (1, 9, 17, 25, 33)),
        (61, (1, 15, 30, 44, 58)),
        (64, (1, 16, 31, 46, 61)),
    ],
)
def test_target_layers_are_spread(num_layers: int, layers: tuple[int, ...]) -> None:
    """36 and 64 are published drafters' (Qwen3-8B, Qwen3.5-27B)."""
    assert default_target_layers(num_layers) == layers


def test_key_value_heads_divide_the_query_heads(target: Target) -> None:
    shape = drafter_shape(target, mask_token_id=260)
    assert (shape.num_heads, shape.num_kv_heads) == (1, 1)
    assert shape.num_heads % shape.num_kv_heads == 0


def test_what_the_target_does_not_have_is_refused(target: Target) -> None:
    with pytest.raises(UsageError, match="has no mask token"):
        drafter_shape(target)
    with pytest.raises(UsageError, match="not in a vocabulary of 264"):
        drafter_shape(target, mask_token_id=264)
    with pytest.raises(UsageError, match="no such layers"):
        drafter_shape(target, mask_token_id=260, target_layers=(0, 2))
    with pytest.raises(UsageError, match="at least one mask"):
        drafter_shape(target, mask_token_id=260, block_size=1)


def test_shared_parts_are_the_targets_own(target: Target) -> None:
    assert target.embedding is target.model.embedding
    assert target.output.shape == (264, 32)
    assert target.final_norm.shape == (32,)
    x = target.embedding[:3]
    expected = x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * target.final_norm
    assert (target.model.norm(x) - expected).abs().max() < 1e-5
