from __future__ import annotations

import numpy as np
import pytest

from deepdraft.infer.checkpoint.gguf_block import BLOCKS, dequantised

gguf = pytest.importorskip("gguf", reason="the package gguf, which the numbers are compared with, is not installed")

BY_NAME = {block_type.name: (kind, block_type) for kind, block_type in BLOCKS.items()}


@pytest.mark.parametrize("name", BY_NAME)
def test_sizes_are_ggmls(name: str) -> None:
    kind, block_type = BY_NAME[name]
    assert gguf.GGMLQuantizationType(kind).name == name
    assert gguf.GGML_QUANT_SIZES[kind] == (block_type.num_weights, block_type.num_bytes)


@pytest.mark.parametrize("name", BY_NAME)
@pytest.mark.parametrize("num_blocks", [1, 37, 20_000])
def test_numbers_are_the_gguf_packages_bit_for_bit(name: str, num_blocks: int) -> None:
    kind, block_type = BY_NAME[name]
    if num_blocks * block_type.num_weights > 1_000_000:
        num_blocks = 1_000_000 // block_type.num_weights
    # Every bit pattern of a block is a valid one, so random bytes reach all of it; scales may be inf and nan.
    raw = np.random.default_rng(num_blocks).integers(0, 256, num_blocks * block_type.num_bytes, dtype=np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(raw.reshape(1, -1), gguf.GGMLQuantizationType(kind)).reshape(-1)
        found = dequantised(raw, name)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, np.asarray(expected, dtype=np.float32))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16", "F16"])
def test_what_was_quantized_comes_back_nearly(name: str) -> None:
    weights = np.random.default_rng(1).normal(size=(8, 512)).astype(np.float32)
    raw = gguf.quantize(weights, gguf.GGMLQuantizationType(BY_NAME[name][0])).view(np.uint8).reshape(-1)
    num_bits = {"Q4_0": 4, "Q4_1": 4, "Q5_0": 5, "Q5_1": 5, "Q8_0": 8, "BF16": 8, "F16": 11}[name]
    limit = 8 / 2**num_bits  # a step of a block that spans about [-4, 4]
    assert np.abs(dequantised(raw, name).reshape(weights.shape) - weights).max() < limit
