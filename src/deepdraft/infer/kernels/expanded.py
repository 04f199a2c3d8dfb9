"""From how many queries on latent attention is cheaper with keys and values expanded."""

from __future__ import annotations

EXPANSION_PRICE = 1.75
"""What a multiplication costs that expands rows, one of attention itself costing 1: expanding writes its results to
memory, attention does not. Measured break-even on one core at 8k tokens (benchmarks/attention): about 150 queries for
4 heads of 32 + 16 and latents of 64 + 16 (128 where whole layers were timed, at 1k, 8k and 32k), 230 for 8 heads of
128 + 64 and 512 + 64. Around the break-even the two forms differ by less than a tenth."""


def fewest_expanded_queries(*, latent_dim: int, plain_dim: int, value_dim: int) -> int | None:
    """The number of queries of one request from which `attend_expanded` is cheaper than `attend`; None: never.

    latent_dim is L (kv_lora_rank), plain_dim Dn (a head's width without its rotary part), value_dim Dv'. Per head and
    cached token, q queries cost q x 2 (L - Dn) multiplications more absorbed than expanded, since either form is
    computed with values as wide as its keys; expanding costs L (Dn + Dv').
    """
    saved_per_query = 2 * (latent_dim - plain_dim)
    if saved_per_query <= 0:
        return None
    return round(EXPANSION_PRICE * latent_dim * (plain_dim + value_dim) / saved_per_query)
