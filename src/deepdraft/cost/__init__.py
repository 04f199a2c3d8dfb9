"""What serving costs, from a model's shape alone: bytes of KV cache. Pure functions of whole numbers; nothing is
measured here, no device is asked, and nothing beyond the standard library is imported."""

from deepdraft.cost.kv import (
    gqa_kv_bytes_per_token,
    latent_kv_bytes_per_token,
    num_pages,
    pool_bytes,
    pool_tokens,
)

__all__ = ["gqa_kv_bytes_per_token", "latent_kv_bytes_per_token", "num_pages", "pool_bytes", "pool_tokens"]
