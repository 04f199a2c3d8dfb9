"""Attention over keys that lie in one tensor, with the log of the sum of exponentials that merging needs. Two ways:

- `portable_attention`: public operations of torch alone, any device and dtype, blocks of bounded size.
- `fused_attention`: the flash kernel that torch's CPU build has behind F.scaled_dot_product_attention, which keeps
  the lse to itself. Called by its private name, so `dense_attention` first checks that it is there and right. On one
  core it attains 0.7 to 0.95 of a matrix product's rate where `portable_attention` attains 0.4 to 0.75 (64 query rows
  and more, benchmarks/attention); with few rows both are bound by reading the keys.

Shape letters: B independent problems, H heads, M query rows, N keys, Dk and Dv widths of a key and a value. Any
tensor may be an expanded view: heads that share keys are written once.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import pad

from deepdraft.infer.kernels.attention import Attended
from deepdraft.infer.kernels.merge import merge

MAX_SCORES = 1 << 22
"""Scores held at once by `portable_attention`: 16 MiB in float32."""
ROW_BLOCK = 256
"""Its query rows at a time."""


class DenseAttention(Protocol):
    """queries [B, H, M, Dk], keys [B, H, N, Dk], values [B, H, N, Dv or wider], of which the first Dv = value_dim
    columns count: latent rows are keys and values in one. mask: added to the scores,
    [M, N] or [B, 1, M, N] (0 or -inf); is_causal: query i
    sees keys 0 .. i (only where M = N). All of one dtype. Every query sees a key. Returns out [B, H, M, Dv] and
    lse [B, H, M]."""

    def __call__(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        *,
        value_dim: int,
        scale: float,
        mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Attended: ...


def dense_attention(device: torch.device) -> DenseAttention:
    """The faster of the two that works on this device, in this torch."""
    if device.type == "cpu" and _fused_is_right():
        return fused_attention
    return portable_attention


def fused_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    value_dim: int,
    scale: float,
    mask: Tensor | None = None,
    is_causal: bool = False,
) -> Attended:
    """torch's own flash kernel for CPU. It wants keys and values of one width: the narrower are padded with zeros."""
    if values.shape[-1] < keys.shape[-1]:
        values = pad(values, (0, keys.shape[-1] - values.shape[-1]))
    elif values.shape[-1] > keys.shape[-1]:
        padding = (0, values.shape[-1] - keys.shape[-1])
        queries, keys = pad(queries, padding), pad(keys, padding)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        queries, keys, values, 0.0, is_causal, attn_mask=mask, scale=scale
    )
    return Attended(out[..., :value_dim], lse)


def portable_attention(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    value_dim: int,
    scale: float,
    mask: Tensor | None = None,
    is_causal: bool = False,
) -> Attended:
    """By matrix products over blocks of queries and keys, merged."""
    values = values[..., :value_dim]
    num_problems, num_heads, num_rows, _ = queries.shape
    row_block = min(num_rows, ROW_BLOCK)
    key_block = max(1, MAX_SCORES // (num_problems * num_heads * row_block))
    order = torch.arange(keys.shape[2], device=queries.device)
    done = []
    for rows in (slice(first, min(first + row_block, num_rows)) for first in range(0, num_rows, row_block)):
        partials = []
        num_keys = rows.stop if is_causal else keys.shape[2]
        for seen in (slice(first, min(first + key_block, num_keys)) for first in range(0, num_keys, key_block)):
            scores = torch.matmul(queries[:, :, rows] * scale, keys[:, :, seen].transpose(-1, -2))
            if mask is not None:
                scores += mask[..., rows, seen]
            if is_causal:
                scores.masked_fill_(order[seen] > order[rows].unsqueeze(-1), float("-inf"))
            lse = scores.logsumexp(dim=-1)
            shares = scores.sub_(lse.masked_fill(lse.isneginf(), 0.0).unsqueeze(-1)).exp_()
            partials.append(Attended(torch.matmul(shares, values[:, :, seen]), lse))
        done.append(merge(partials))
    return Attended(torch.cat([part.out for part in done], dim=2), torch.cat([part.lse for part in done], dim=2))


def _fused_is_right() -> bool:
    """Whether this torch has the kernel, with the arguments and results relied upon: an lse in natural logarithm,
    strided and expanded views, a mask that hides a whole block of keys from a row (NaN in older versions)."""
    random = torch.Generator().manual_seed(0)
    pool = torch.randn(600, 2, 16, generator=random)
    queries = torch.randn(2, 3, 5, 16, generator=random)
    keys = pool.transpose(0, 1).unsqueeze(1).expand(2, 3, 600, 16)
    mask = torch.zeros(5, 600)
    mask[1, :599] = float("-inf")
    expected = portable_attention(queries, keys, keys, value_dim=8, scale=0.3, mask=mask)
    try:
        found = fused_attention(queries, keys, keys, value_dim=8, scale=0.3, mask=mask)
    except (AttributeError, RuntimeError, TypeError, ValueError):
        return False
    pairs = zip(found, expected, strict=True)
    return all(one.shape == other.shape and torch.allclose(one, other, atol=1e-4) for one, other in pairs)
