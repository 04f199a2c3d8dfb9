"""Where `torch_backend` takes a layer's keys and values from: the cached rows, or latent rows expanded per head.

Letters as in `plan`; n tokens of a segment, L width of a latent, Dn and Dr widths of a key's parts without and with
rotary embedding, Dv' width of an expanded value.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import linear

from deepdraft.infer.kernels.plan import LayerKv
from deepdraft.infer.kernels.segment import Segment, read

BLOCK_BYTES = 1 << 20
"""KV gathered or converted at a time, for each thread. Measured with 1 MiB of second-level cache a core: 256 KiB to
4 MiB are within 10 %; from 32 MiB on, fresh pages from the operating system make gathering 2 to 4 times slower."""
MAX_BLOCK_BYTES = 16 << 20
"""For all threads."""
EXPANDED_LEN = 1536
"""Tokens expanded at a time: 1024 to 3072 are within 5 %, 512 is 15 % slower."""
EXPANDED_BYTES = 64 << 20
"""At most, however many heads."""


class Source(Protocol):
    """Keys and values by segment."""

    num_kv_heads: int
    value_dim: int
    block_len: int
    """Tokens to copy at a time."""
    is_view: bool
    """A run of slots costs no memory, however long."""

    def load(self, segment: Segment) -> tuple[Tensor, Tensor]:
        """keys [n, Hk, Dk] and values [n, Hk, at least Dv]; the same tensor where a latent row is both."""


class CachedRows:
    """Keys and values as they are cached, in `dtype`."""

    def __init__(self, layer: LayerKv, dtype: torch.dtype) -> None:
        self._layer = layer
        self._dtype = dtype
        self.num_kv_heads, self.value_dim = layer.values.shape[1:]
        row_dim = layer.keys.shape[2] + (0 if layer.is_latent else self.value_dim)
        block_bytes = min(BLOCK_BYTES * torch.get_num_threads(), MAX_BLOCK_BYTES)
        self.block_len = max(1, block_bytes // (self.num_kv_heads * row_dim * dtype.itemsize))
        self.is_view = layer.keys.dtype == dtype

    def load(self, segment: Segment) -> tuple[Tensor, Tensor]:
        """As `Source.load`."""
        keys = read(self._layer.keys, segment).to(self._dtype)
        return keys, keys if self._layer.is_latent else read(self._layer.values, segment).to(self._dtype)


class ExpandedLatents:
    """Latent rows [c, k_rope] as keys [key_up @ c, k_rope] and values value_up @ c of every query head."""

    is_view = False

    def __init__(self, layer: LayerKv, dtype: torch.dtype, *, key_up: Tensor, value_up: Tensor) -> None:
        """key_up [Hq, Dn, L], value_up [Hq, Dv', L]"""
        self._rows = layer.keys
        self._key_up, self._value_up = key_up.to(dtype).flatten(0, 1), value_up.to(dtype).flatten(0, 1)
        self._dtype = dtype
        self.num_kv_heads, self.value_dim, self._latent_dim = value_up.shape
        key_dim = key_up.shape[1] + layer.keys.shape[2] - self._latent_dim
        row_bytes = self.num_kv_heads * (key_dim + self.value_dim) * dtype.itemsize
        self.block_len = max(1, min(EXPANDED_LEN, EXPANDED_BYTES // row_bytes))

    def load(self, segment: Segment) -> tuple[Tensor, Tensor]:
        """As `Source.load`."""
        rows = read(self._rows, segment)[:, 0].to(self._dtype)
        latents, rotary = rows[:, : self._latent_dim], rows[:, self._latent_dim :]
        keys = linear(latents, self._key_up).view(len(rows), self.num_kv_heads, -1)
        keys = torch.cat([keys, rotary.unsqueeze(1).expand(-1, self.num_kv_heads, -1)], dim=2)
        return keys, linear(latents, self._value_up).view(len(rows), self.num_kv_heads, -1)
