"""From how many queries on latent attention is cheaper with keys and values expanded: a matter of the back end."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ExpansionPrice:
    """What expanding a latent row costs a back end, a multiplication of attention itself costing 1."""

    per_multiplication: float
    per_number: float
    """Of keys and values: written to memory, and read from there by kernels that are better at wide rows"""


TORCH_PRICE = ExpansionPrice(per_multiplication=1.2, per_number=73)
NATIVE_PRICE = ExpansionPrice(per_multiplication=0.9, per_number=240)
"""The prices are those with which the break-evens measured on one core come out, whole forms timed with pages of 16:
150 (torch, 8k tokens) and 300 queries (native, 2k and 8k) for 4 heads of 32 + 16 over latents of 64 + 16; 230 (torch)
and 235 (native, 4k) for 8 heads of 128 + 64 over 512 + 64. Around the break-even the two forms differ by less than a
tenth. For narrow heads the native kernel gains less from expanding: it is fast where all heads share a row."""
EXPANSION_PRICES = {
    "native": NATIVE_PRICE,
    "reference": TORCH_PRICE,
    "torch": TORCH_PRICE,
    "triton": TORCH_PRICE,  # it leaves the expanded form to torch; not measured on a GPU
}
"""By the back end's name."""


def fewest_expanded_queries(
    *, latent_dim: int, plain_dim: int, value_dim: int, price: ExpansionPrice = TORCH_PRICE
) -> int | None:
    """The number of queries of one request from which `attend_expanded` is cheaper than `attend`; None: never.

    latent_dim is L (kv_lora_rank), plain_dim Dn (a head's width without its rotary part), value_dim Dv'. Per head and
    cached token, q queries cost q (2 L - Dn - Dv') multiplications more absorbed than expanded; expanding costs
    L (Dn + Dv') of them and writes Dn + Dv' numbers.
    """
    saved_per_query = 2 * latent_dim - plain_dim - value_dim
    if saved_per_query <= 0:
        return None
    width = plain_dim + value_dim
    return round((price.per_multiplication * latent_dim + price.per_number) * width / saved_per_query)
