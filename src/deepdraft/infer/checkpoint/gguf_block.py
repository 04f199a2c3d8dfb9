"""GGUF's blocks of quantized weights to float32 (layouts of ggml's ggml-common.h, arithmetic of ggml-quants.c).

Shape letters: N blocks. Each `_layout` names a block's bytes; each function takes N of them and fills [N, weights].
Numbers come out bit for bit as the `gguf` package's, which the tests hold them to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Blocks = NDArray[Any]
Weights = NDArray[np.float32]

_NUM_BLOCKS_AT_ONCE = 1 << 14
"""Bounds the working memory, and keeps it within the processor's cache."""


@dataclass(frozen=True, slots=True)
class BlockType:
    """One way of storing weights."""

    name: str
    num_weights: int
    layout: np.dtype[Any]
    fill: Callable[[Blocks, Weights], None]
    """(blocks [N] of `layout`, out [N, num_weights])"""

    @property
    def num_bytes(self) -> int:
        """Of one block."""
        return self.layout.itemsize


def dequantised(raw: NDArray[np.uint8], name: str) -> Weights:
    """All weights of a tensor's bytes, flat."""
    block_type = _BY_NAME[name]
    blocks = raw.view(block_type.layout)
    out = np.empty((len(blocks), block_type.num_weights), dtype=np.float32)
    for start in range(0, len(blocks), _NUM_BLOCKS_AT_ONCE):
        part = slice(start, start + _NUM_BLOCKS_AT_ONCE)
        block_type.fill(blocks[part], out[part])
    return out.reshape(-1)


def _plain(blocks: Blocks, out: Weights) -> None:
    out[:, 0] = blocks


def _bfloat16(blocks: Blocks, out: Weights) -> None:
    out[:, 0] = (blocks.astype(np.uint32) << 16).view(np.float32)


def _scale(blocks: Blocks, name: str = "scale") -> Weights:
    return np.asarray(blocks[name], dtype=np.float32)[:, None]


def _nibbles(packed: NDArray[np.uint8], out: NDArray[Any]) -> None:
    """Low halves of the bytes to the first half of `out`'s columns, high halves to the second."""
    half = packed.shape[1]
    np.bitwise_and(packed, 0x0F, out=out[:, :half], casting="unsafe")
    np.right_shift(packed, 4, out=out[:, half:], casting="unsafe")


def _fifth_bits(bits: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[N, 32] of 0 or 16 from [N, 4] bytes, lowest bit first."""
    return np.unpackbits(np.ascontiguousarray(bits), axis=1, bitorder="little") << np.uint8(4)


def _q4_0(blocks: Blocks, out: Weights) -> None:
    _nibbles(blocks["nibbles"], out)
    out -= 8.0
    out *= _scale(blocks)


def _q4_1(blocks: Blocks, out: Weights) -> None:
    _nibbles(blocks["nibbles"], out)
    out *= _scale(blocks)
    out += _scale(blocks, "offset")


def _five_bits(blocks: Blocks) -> NDArray[np.uint8]:
    weights = np.empty((len(blocks), 32), dtype=np.uint8)
    _nibbles(blocks["nibbles"], weights)
    weights |= _fifth_bits(blocks["bits"])
    return weights


def _q5_0(blocks: Blocks, out: Weights) -> None:
    np.subtract(_five_bits(blocks), 16.0, out=out, casting="unsafe")
    out *= _scale(blocks)


def _q5_1(blocks: Blocks, out: Weights) -> None:
    np.multiply(_five_bits(blocks), _scale(blocks), out=out)
    out += _scale(blocks, "offset")


def _q8_0(blocks: Blocks, out: Weights) -> None:
    np.multiply(blocks["weights"], _scale(blocks), out=out)


def _six_bit_pairs(packed: NDArray[np.uint8]) -> tuple[Weights, Weights]:
    """K-quants' 8 scales and 8 minima of 6 bits each from 12 bytes: two [N, 8]."""
    low, middle, high = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([low & 0x3F, (high & 0x0F) | ((low >> 2) & 0x30)], axis=1)
    minima = np.concatenate([middle & 0x3F, (high >> 4) | ((middle >> 2) & 0x30)], axis=1)
    return scales.astype(np.float32), minima.astype(np.float32)


def _q4_k(blocks: Blocks, out: Weights) -> None:
    num_blocks = len(blocks)
    weights = np.empty((num_blocks, 4, 64), dtype=np.float32)
    _nibbles(blocks["nibbles"].reshape(-1, 32), weights.reshape(-1, 64))
    _scale_and_shift(blocks, weights.reshape(num_blocks, 8, 32), out)


def _q5_k(blocks: Blocks, out: Weights) -> None:
    num_blocks = len(blocks)
    weights = np.empty((num_blocks, 4, 64), dtype=np.uint8)
    _nibbles(blocks["nibbles"].reshape(-1, 32), weights.reshape(-1, 64))
    weights = weights.reshape(num_blocks, 8, 32)
    # Bit i of byte j is the fifth bit of weight j in run i.
    weights |= ((blocks["bits"][:, None, :] >> np.arange(8, dtype=np.uint8)[:, None]) & 1) << np.uint8(4)
    _scale_and_shift(blocks, weights, out)


def _scale_and_shift(blocks: Blocks, weights: NDArray[Any], out: Weights) -> None:
    """Eight runs of 32 weights, each with its own scale and minimum."""
    scales, minima = _six_bit_pairs(blocks["scales"])
    runs = out.reshape(len(blocks), 8, 32)
    np.multiply((_scale(blocks) * scales)[:, :, None], weights, out=runs)
    runs -= (_scale(blocks, "offset") * minima)[:, :, None]


def _q6_k(blocks: Blocks, out: Weights) -> None:
    num_blocks = len(blocks)
    weights = np.empty((num_blocks, 2, 128), dtype=np.uint8)
    _nibbles(blocks["nibbles"].reshape(-1, 64), weights.reshape(-1, 128))
    shifts = np.array([0, 2, 4, 6], dtype=np.uint8)[:, None]
    weights.reshape(num_blocks, 2, 4, 32)[...] |= (
        (blocks["bits"].reshape(num_blocks, 2, 1, 32) >> shifts) & 3
    ) << np.uint8(4)
    runs = out.reshape(num_blocks, 16, 16)
    np.subtract(weights.reshape(num_blocks, 16, 16), 32.0, out=runs, casting="unsafe")
    runs *= (_scale(blocks) * blocks["scales"].astype(np.float32))[:, :, None]


def _layout(*fields: tuple[str, str] | tuple[str, str, int]) -> np.dtype[Any]:
    return np.dtype(list(fields))


_HALF_SCALE = ("scale", "<f2")
_HALF_OFFSET = ("offset", "<f2")
_K_HEAD = (_HALF_SCALE, _HALF_OFFSET, ("scales", "u1", 12))

# By ggml's type number.
BLOCKS = {
    0: BlockType("F32", 1, np.dtype("<f4"), _plain),
    1: BlockType("F16", 1, np.dtype("<f2"), _plain),
    2: BlockType("Q4_0", 32, _layout(_HALF_SCALE, ("nibbles", "u1", 16)), _q4_0),
    3: BlockType("Q4_1", 32, _layout(_HALF_SCALE, _HALF_OFFSET, ("nibbles", "u1", 16)), _q4_1),
    6: BlockType("Q5_0", 32, _layout(_HALF_SCALE, ("bits", "u1", 4), ("nibbles", "u1", 16)), _q5_0),
    7: BlockType("Q5_1", 32, _layout(_HALF_SCALE, _HALF_OFFSET, ("bits", "u1", 4), ("nibbles", "u1", 16)), _q5_1),
    8: BlockType("Q8_0", 32, _layout(_HALF_SCALE, ("weights", "i1", 32)), _q8_0),
    12: BlockType("Q4_K", 256, _layout(*_K_HEAD, ("nibbles", "u1", 128)), _q4_k),
    13: BlockType("Q5_K", 256, _layout(*_K_HEAD, ("bits", "u1", 32), ("nibbles", "u1", 128)), _q5_k),
    14: BlockType(
        "Q6_K", 256, _layout(("nibbles", "u1", 128), ("bits", "u1", 64), ("scales", "i1", 16), _HALF_SCALE), _q6_k
    ),
    30: BlockType("BF16", 1, np.dtype("<u2"), _bfloat16),
}
_BY_NAME = {block_type.name: block_type for block_type in BLOCKS.values()}
