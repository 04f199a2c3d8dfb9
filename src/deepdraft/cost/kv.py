"""Bytes of KV cache per token for the two plain families of attention, and a pool's tokens from its bytes and back.
The engine allocates by it, so what is predicted is what is used.

Each is for one rank of a tensor-parallel group. A target with its drafter costs the sum:

    target  = latent_kv_bytes_per_token(num_layers=61, kv_lora_rank=512, qk_rope_head_dim=64, element_bytes=2)
    drafter = gqa_kv_bytes_per_token(
        num_layers=6, num_kv_heads=8, key_dim=128, value_dim=128, element_bytes=2, tp_size=8
    )
    pool_tokens(15 * 2**30, bytes_per_token=target + drafter, page_size=16)

The arithmetic is `kv_family`'s, which also has windows, recurrent states, sparse indexes and packed storage types.
How engines turn their own fraction of memory into pool bytes is not a formula of the cache and is left out.
"""

from __future__ import annotations

from deepdraft.cost.kv_dtype import KvDtype
from deepdraft.cost.kv_family import Grouped, KvFormat, Latent


def latent_kv_bytes_per_token(
    *, num_layers: int, kv_lora_rank: int, qk_rope_head_dim: int, element_bytes: int
) -> int:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, 2.1): one row of kv_lora_rank + qk_rope_head_dim
    numbers a layer, shared by all heads; values are part of the row. Every tensor-parallel rank holds all of it.

    Raises ValueError unless all are positive (qk_rope_head_dim may be 0: no positional part).
    """
    _check_positive(num_layers=num_layers, kv_lora_rank=kv_lora_rank, element_bytes=element_bytes)
    if qk_rope_head_dim < 0:
        raise ValueError(f"qk_rope_head_dim must not be negative: {qk_rope_head_dim}")
    rows = Latent(num_layers=num_layers, kv_lora_rank=kv_lora_rank, qk_rope_head_dim=qk_rope_head_dim)
    return rows.row_bytes(_plain(element_bytes))


def gqa_kv_bytes_per_token(
    *, num_layers: int, num_kv_heads: int, key_dim: int, value_dim: int, element_bytes: int, tp_size: int = 1
) -> int:
    """Grouped-query attention (arXiv 2305.13245): a key and a value for every KV head and layer. Multi-head is
    num_kv_heads = num_qo_heads, multi-query is num_kv_heads = 1.

    Of `tp_size` ranks each holds its share of the heads, and at least one: heads are replicated once there are more
    ranks than heads. Where the ranks don't divide the heads, this is the rank with most.
    Raises ValueError unless all are positive.
    """
    _check_positive(
        num_layers=num_layers,
        num_kv_heads=num_kv_heads,
        key_dim=key_dim,
        value_dim=value_dim,
        element_bytes=element_bytes,
        tp_size=tp_size,
    )
    rows = Grouped(num_layers=num_layers, num_kv_heads=num_kv_heads, key_dim=key_dim, value_dim=value_dim)
    return rows.row_bytes(_plain(element_bytes), tp_size)


def num_pages(num_tokens: int, page_size: int) -> int:
    """Pages that hold `num_tokens`; the last may be part empty. Raises ValueError for a page_size below 1."""
    _check_positive(page_size=page_size)
    if num_tokens < 0:
        raise ValueError(f"num_tokens must not be negative: {num_tokens}")
    return -(-num_tokens // page_size)


def pool_tokens(num_bytes: int, *, bytes_per_token: int, page_size: int = 1) -> int:
    """Tokens that a pool of at most `num_bytes` holds, in whole pages; 0 where not even one page fits.

    Raises ValueError unless bytes_per_token and page_size are positive and num_bytes is not negative.
    """
    _check_positive(bytes_per_token=bytes_per_token, page_size=page_size)
    if num_bytes < 0:
        raise ValueError(f"num_bytes must not be negative: {num_bytes}")
    return num_bytes // (bytes_per_token * page_size) * page_size


def pool_bytes(num_tokens: int, *, bytes_per_token: int, page_size: int = 1) -> int:
    """Bytes of the smallest pool of whole pages that holds `num_tokens`. Raises ValueError as `pool_tokens` does."""
    _check_positive(bytes_per_token=bytes_per_token)
    return num_pages(num_tokens, page_size) * page_size * bytes_per_token


def _plain(element_bytes: int) -> KvFormat:
    dtype = KvDtype(f"{element_bytes} bytes", 1, element_bytes)
    return KvFormat(key=dtype, value=dtype)


def _check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be positive: {size}")
