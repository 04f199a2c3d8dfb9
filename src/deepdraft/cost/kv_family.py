"""KV cache by family of attention: what grows with every token, and what is fixed per sequence.

A model is a tuple of families, one for each group of layers that cost the same. Each answers, for one rank of a
tensor-parallel group:

    row_bytes     one row in all its layers; a row is a token, or `stride` tokens where rows are compressed
    window        tokens of a sequence that stay resident; None: all of them
    state_bytes   what a sequence holds whatever its length

and the sums over a model are below: `kv_bytes_per_token` for what grows, `kv_bytes_per_sequence` for what does not,
`sequence_kv_bytes` for a sequence of a given length. Pages, pools, tokens in flight beyond a window and whatever an
engine counts differently are left out.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from deepdraft.cost.kv_dtype import BFLOAT16, FLOAT32, FP8, KvDtype

SPARSE_FP8_ROW_BYTES = 656
"""A latent row of sparse attention in fp8 (DeepSeek-V3.2's kernels): 512 values of a byte, 4 float32 scales, and 64
positional values that stay in bfloat16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvFormat:
    """How a cache is stored. Latent and compressed rows use `key`."""

    key: KvDtype
    value: KvDtype
    state: KvDtype = FLOAT32
    """Recurrent states."""
    conv: KvDtype | None = None
    """Convolution windows of recurrent layers; None: as `key`."""
    has_sparse_fp8_rows: bool = False
    """Whether latent rows of sparse attention in fp8 take SPARSE_FP8_ROW_BYTES, not a byte a number."""

    @classmethod
    def of(cls, dtype: KvDtype) -> KvFormat:
        """Keys and values in one type; sparse latent rows in the layout of their kernels."""
        return cls(key=dtype, value=dtype, has_sparse_fp8_rows=dtype == FP8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped:
    """Multi-head, grouped-query or multi-query attention (arXiv 2305.13245); whole, in a window, or in chunks of
    that length."""

    num_layers: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None
    stride: ClassVar[int] = 1

    def row_bytes(self, form: KvFormat, tp_size: int = 1) -> int:
        """Heads are shared out over the ranks, at least one each; this is the rank with most."""
        heads = -(-self.num_kv_heads // tp_size)
        return self.num_layers * (
            form.key.row_bytes(heads * self.key_dim) + form.value.row_bytes(heads * self.value_dim)
        )

    def state_bytes(self, form: KvFormat, tp_size: int = 1) -> int:
        """Nothing: all is rows."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Latent:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1): a row of kv_lora_rank + qk_rope_head_dim
    numbers a layer, shared by all heads, values being part of it. Every rank holds all of it."""

    num_layers: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    is_sparse: bool = False
    """Of a model with an index (DSA), whose fp8 rows may have a layout of their own."""
    window: int | None = None
    stride: ClassVar[int] = 1

    def row_bytes(self, form: KvFormat, tp_size: int = 1) -> int:
        """The same on every rank."""
        if self.is_sparse and form.has_sparse_fp8_rows:
            return self.num_layers * SPARSE_FP8_ROW_BYTES
        return self.num_layers * form.key.row_bytes(self.kv_lora_rank + self.qk_rope_head_dim)

    def state_bytes(self, form: KvFormat, tp_size: int = 1) -> int:
        """Nothing: all is rows."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """Keys by which sparse attention chooses its tokens (DSA: DeepSeek-V3.2, GLM-5; MiniMax-M3): one a token and
    layer, on every rank, whatever the type of the cache. With `has_scales` a byte a number and a float32 scale for
    every 128, as DSA stores them; else bfloat16."""

    num_layers: int
    dim: int
    has_scales: bool = True
    stride: int = 1
    """Tokens a row stands for."""
    window: ClassVar[int | None] = None

    def row_bytes(self, form: KvFormat, tp_size: int = 1) -> int:
        """The same on every rank."""
        if self.has_scales:
            return self.num_layers * (self.dim + -(-self.dim // 128) * 4)
        return self.num_layers * BFLOAT16.row_bytes(self.dim)

    def state_bytes(self, form: KvFormat, tp_size: int = 1) -> int:
        """Nothing: all is rows."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compressed:
    """DeepSeek-V4's rows: one for `stride` tokens, or with stride 1 and a window its ring of recent tokens. In fp8:
    the values without position a byte each, the positional ones in bfloat16, and 8 bytes of scales; on every rank."""

    num_layers: int
    dim: int
    qk_rope_head_dim: int
    stride: int = 1
    window: int | None = None

    def row_bytes(self, form: KvFormat, tp_size: int = 1) -> int:
        """The same on every rank."""
        if form.key == FP8:
            return self.num_layers * (self.dim - self.qk_rope_head_dim + 2 * self.qk_rope_head_dim + 8)
        return self.num_layers * form.key.row_bytes(self.dim)

    def state_bytes(self, form: KvFormat, tp_size: int = 1) -> int:
        """Nothing: all is rows."""
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrent:
    """Layers with a state instead of a cache (Mamba-2, gated delta networks, Kimi delta attention): per layer a state
    of `state_elements`, and the last kernel - 1 inputs of a convolution, `conv_elements`. Split over the ranks by
    heads."""

    num_layers: int
    num_heads: int
    state_elements: int
    conv_elements: int
    stride: int = 1
    """Of a compressor's state: tokens that it turns into one row."""
    window: ClassVar[int | None] = None

    def row_bytes(self, form: KvFormat, tp_size: int = 1) -> int:
        """Nothing grows."""
        return 0

    def state_bytes(self, form: KvFormat, tp_size: int = 1) -> int:
        """Bytes of one sequence on the rank with most heads."""
        heads = -(-self.num_heads // tp_size)
        conv = form.conv or form.key
        return self.num_layers * (
            form.state.row_bytes(self.state_elements // self.num_heads * heads)
            + conv.row_bytes(-(-self.conv_elements * heads // self.num_heads))
        )


Family = Grouped | Latent | Index | Compressed | Recurrent


def kv_bytes_per_token(families: Iterable[Family], form: KvFormat, tp_size: int = 1) -> float:
    """Bytes that every further token of a long sequence adds on each rank. Whole unless rows are compressed."""
    return sum(each.row_bytes(form, tp_size) / each.stride for each in families if each.window is None)


def kv_bytes_per_sequence(families: Iterable[Family], form: KvFormat, tp_size: int = 1) -> int:
    """Bytes that a sequence holds on each rank whatever its length, once it is longer than every window."""
    return sum(
        each.state_bytes(form, tp_size) + (0 if each.window is None else each.window * each.row_bytes(form, tp_size))
        for each in families
    )


def sequence_kv_bytes(families: Iterable[Family], form: KvFormat, context_len: int, tp_size: int = 1) -> int:
    """Bytes that a sequence of that length holds on each rank. Raises ValueError for a negative length."""
    if context_len < 0:
        raise ValueError(f"context_len must not be negative: {context_len}")
    total = 0
    for each in families:
        num_rows = -(-context_len // each.stride)
        resident = num_rows if each.window is None else min(num_rows, each.window)
        total += each.state_bytes(form, tp_size) + resident * each.row_bytes(form, tp_size)
    return total
