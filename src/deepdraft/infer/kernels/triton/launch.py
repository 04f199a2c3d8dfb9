"""From tensors to launches: which constants the kernels are compiled with, and their grids.

Letters as in `plan`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.plan import LayerKv
from deepdraft.infer.kernels.triton.attend import attend_split, merge_splits
from deepdraft.infer.kernels.triton.lists import DeviceLists
from deepdraft.infer.kernels.triton.tile import Tile

MIN_DOT_DIM = 16
"""The least width of a matrix product on the device."""
MERGE_BLOCK_VALUE = 128
MERGE_BLOCK_PARTS = 16
MERGE_WARPS = 4
LOG2_E = 1.4426950408889634


@dataclass(frozen=True, slots=True)
class Shape:
    """What the attention kernel is compiled for, beside its tile."""

    num_kv_heads: int
    group_size: int
    page_size: int
    key_dim: int
    value_dim: int
    is_latent: bool
    dtype: torch.dtype
    """Of the cache"""
    query_dtype: torch.dtype

    @property
    def is_wide(self) -> bool:
        """Whether products are of float32 numbers."""
        return self.dtype != self.query_dtype or self.dtype == torch.float32

    @property
    def first_dim(self) -> int:
        """Columns of a key that are multiplied first; of a latent row those that are its value."""
        return self.value_dim if self.is_latent else self.key_dim

    @property
    def widest_dim(self) -> int:
        """Columns that a program holds of a token at once."""
        return max(self.first_dim, self.value_dim)

    def constants(self, tile: Tile, *, is_wide: bool) -> dict[str, object]:
        """The kernel's constants. is_wide where that is not left to the shape: under the interpreter."""
        first_dim = self.first_dim
        return {
            "NUM_KV_HEADS": self.num_kv_heads,
            "GROUP_SIZE": self.group_size,
            "PAGE_SIZE": self.page_size,
            "IS_LATENT": self.is_latent,
            "KEY_DIM": first_dim,
            "REST_DIM": self.key_dim - first_dim,
            "VALUE_DIM": self.value_dim,
            "BLOCK_KEY": _block(first_dim),
            "BLOCK_REST": _block(self.key_dim - first_dim),
            "BLOCK_VALUE": _block(self.value_dim),
            "BLOCK_M": tile.block_m,
            "BLOCK_N": tile.block_n,
            "IS_WIDE": is_wide or self.is_wide,
        }


def merge_constants(num_heads: int, value_dim: int) -> dict[str, int]:
    """The merging kernel's."""
    return {
        "NUM_HEADS": num_heads,
        "VALUE_DIM": value_dim,
        "BLOCK_VALUE": min(MERGE_BLOCK_VALUE, _block(value_dim)),
        "BLOCK_PARTS": MERGE_BLOCK_PARTS,
    }


def attend(
    queries: Tensor,
    layer: LayerKv,
    lists: DeviceLists,
    *,
    scale: float,
    tile: Tile,
    num_splits: int,
    min_split_len: int,
    constants: dict[str, object],
) -> Attended:
    """Attention of the lists' maximal shape; queries [max T, Hq, Dk], of which rows that are no one's give 0."""
    num_rows, num_heads, _ = queries.shape
    num_kv_heads, value_dim = layer.values.shape[1:]
    num_parts = num_splits + 1
    part_out = queries.new_empty((num_rows, num_heads, num_parts, value_dim), dtype=torch.float32)
    part_lse = queries.new_empty((num_rows, num_heads, num_parts), dtype=torch.float32)
    row_tiles = triton.cdiv(lists.maxima.query_len * num_heads // num_kv_heads, tile.block_m)
    attend_split[row_tiles, lists.maxima.num_requests * num_kv_heads, num_parts](
        queries,
        layer.keys,
        layer.values,
        part_out,
        part_lse,
        lists.qo_indptr,
        lists.kv_indptr,
        lists.kv_indices,
        lists.kv_lens,
        lists.tail_bits,
        scale * LOG2_E,
        queries.stride(0),
        queries.stride(1),
        layer.keys.stride(0),
        layer.keys.stride(1),
        layer.values.stride(0),
        layer.values.stride(1),
        num_splits,
        min_split_len,
        lists.tail_bits.shape[1],
        **constants,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )
    out = queries.new_empty((num_rows, num_heads, value_dim), dtype=torch.float32 if constants["IS_WIDE"] else None)
    lse = queries.new_empty((num_rows, num_heads), dtype=torch.float32)
    merging = merge_constants(num_heads, value_dim)
    merge_splits[num_rows * num_heads, triton.cdiv(value_dim, merging["BLOCK_VALUE"])](
        part_out, part_lse, out, lse, lists.qo_indptr[-1:], num_parts, **merging, num_warps=MERGE_WARPS
    )
    return Attended(out.to(queries.dtype), lse)


def _block(dim: int) -> int:
    return max(MIN_DOT_DIM, 1 << (dim - 1).bit_length() if dim else 0)
