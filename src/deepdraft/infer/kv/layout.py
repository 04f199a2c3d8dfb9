"""The shape of a KV cache: what each layer stores per token, how many tokens make a page, in which dtype.

A pool has one set of pages for all its layers. Layers need not be alike: a drafter's are appended to the target's,
and a token's row is then in the same slot of every layer. Sizes come from `cost.kv`, the one formula.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from deepdraft.cost.kv import gqa_kv_bytes_per_token, latent_kv_bytes_per_token
from deepdraft.errors import UsageError
from deepdraft.infer.config import MlaShape, ModelConfig


@dataclass(frozen=True, slots=True)
class LayerShape:
    """What one layer stores per token.

    Latent attention stores one row that all heads share: num_kv_heads is 1, key_dim is kv_lora_rank +
    qk_rope_head_dim, and the values are its first value_dim = kv_lora_rank columns.
    """

    num_kv_heads: int
    key_dim: int
    value_dim: int
    is_latent: bool

    def bytes_per_token(self, element_bytes: int) -> int:
        """Of this layer alone, on one device that holds all heads."""
        if self.is_latent:
            return latent_kv_bytes_per_token(
                num_layers=1,
                kv_lora_rank=self.value_dim,
                qk_rope_head_dim=self.key_dim - self.value_dim,
                element_bytes=element_bytes,
            )
        return gqa_kv_bytes_per_token(
            num_layers=1,
            num_kv_heads=self.num_kv_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
            element_bytes=element_bytes,
        )


@dataclass(frozen=True, slots=True)
class KvLayout:
    """The shape of a pool. Raises UsageError for a page_size below 1."""

    layers: tuple[LayerShape, ...]
    page_size: int
    """Tokens in a page."""
    dtype: torch.dtype

    def __post_init__(self) -> None:
        if self.page_size < 1:
            raise UsageError(f"a page of {self.page_size} tokens can't hold any", hint="--page-size is 1 or more")

    @property
    def bytes_per_token(self) -> int:
        """Of all layers."""
        return sum(layer.bytes_per_token(self.dtype.itemsize) for layer in self.layers)

    @property
    def bytes_per_page(self) -> int:
        """Of all layers."""
        return self.bytes_per_token * self.page_size


def kv_layout(
    config: ModelConfig, *, page_size: int, dtype: torch.dtype, drafter_layers: tuple[LayerShape, ...] = ()
) -> KvLayout:
    """What a model's own layers store and, behind them, a drafter's. Raises UsageError for a page_size below 1."""
    return KvLayout((_layer_shape(config),) * config.num_layers + drafter_layers, page_size, dtype)


def _layer_shape(config: ModelConfig) -> LayerShape:
    attention = config.attention
    if isinstance(attention, MlaShape):
        key_dim = attention.kv_lora_rank + attention.qk_rope_head_dim
        return LayerShape(1, key_dim, attention.kv_lora_rank, is_latent=True)
    return LayerShape(attention.num_kv_heads, attention.head_dim, attention.head_dim, is_latent=False)
