"""DeepSeek-V4's layers from its families, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepdraft.errors import UsageError
from deepdraft.planner.bundled import bundled_model
from deepdraft.planner.v4_layers import V4Layers, v4_families, v4_layers

SIZES = {"dim": 512, "rope_dim": 64, "index_dim": 128, "window": 128}


def test_the_released_models() -> None:
    """Flash: two layers with a window alone, then 4 and 128 by turns. Pro: 128 twice, then by turns."""
    for name, counts in (("deepseek-v4-flash", (43, 21, 20)), ("deepseek-v4-pro", (61, 30, 31))):
        model = bundled_model(name)
        assert model is not None
        num_layers, num_4, num_128 = counts
        assert v4_layers(model.shape.families) == V4Layers(
            num_layers=num_layers, num_4=num_4, num_128=num_128, **SIZES
        )


def test_other_models_have_none() -> None:
    for name in ("qwen3-8b", "kimi-k2.6", "gemma-3-27b", "qwen3-next-80b-a3b"):
        model = bundled_model(name)
        assert model is not None and v4_layers(model.shape.families) is None


@given(st.lists(st.sampled_from([0, 4, 128]), min_size=1, max_size=70))
def test_ratios_are_counted(ratios: list[int]) -> None:
    layers = v4_layers(v4_families(ratios, **SIZES))
    assert layers is not None
    assert (layers.num_layers, layers.num_of(4), layers.num_of(128)) == (
        len(ratios), ratios.count(4), ratios.count(128),
    )  # fmt: skip


@pytest.mark.parametrize("ratio", [1, 2, 8])
def test_ratios_of_deepseek_v4_1_are_refused(ratio: int) -> None:
    with pytest.raises(UsageError, match="compress_ratios"):
        v4_families([4, ratio], **SIZES)
