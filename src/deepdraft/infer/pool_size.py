"""From what was asked for to the settings that take effect: how many tokens the KV pool holds.

The formula is `cost.kv`'s, so a pool is exactly what was predicted for it. How many bytes are available is given.
"""

from __future__ import annotations

import torch

from deepdraft.cost.kv import num_pages, pool_bytes, pool_tokens
from deepdraft.errors import UsageError
from deepdraft.infer.config import ModelConfig
from deepdraft.infer.kv.layout import KvLayout
from deepdraft.infer.settings import DEFAULT_MEM_FRACTION, DEFAULT_NUM_CONTEXTS


def kv_pool_tokens(
    layout: KvLayout,
    *,
    available_bytes: int,
    max_context_len: int,
    mem_fraction: float | None = None,
    stated_tokens: int | None = None,
) -> int:
    """Tokens of the pool, in whole pages. `available_bytes`: memory that is left after the weights.

    Stated as tokens: that many, the last page filled up. Stated as a fraction: what fits that part of the available
    bytes. Neither: what fits DEFAULT_MEM_FRACTION, but no more than DEFAULT_NUM_CONTEXTS full contexts.
    Raises UsageError where both are stated, the fraction isn't between 0 and 1, or no such pool fits.
    """
    if mem_fraction is not None and stated_tokens is not None:
        raise UsageError("the KV pool is stated twice", hint="use either --mem-fraction or --kv-pool-tokens")
    if stated_tokens is not None:
        return _stated(layout, stated_tokens, available_bytes)
    fraction = DEFAULT_MEM_FRACTION if mem_fraction is None else mem_fraction
    if not 0 < fraction <= 1:
        raise UsageError(f"--mem-fraction must be above 0 and at most 1: {fraction}")
    fitting = pool_tokens(
        int(available_bytes * fraction), bytes_per_token=layout.bytes_per_token, page_size=layout.page_size
    )
    if fitting == 0:
        raise UsageError(
            f"not one page of {layout.bytes_per_page} bytes fits {fraction:g} of {available_bytes} available bytes",
            hint="raise --mem-fraction or free memory",
        )
    if mem_fraction is not None:
        return fitting
    return min(fitting, num_pages(DEFAULT_NUM_CONTEXTS * max_context_len, layout.page_size) * layout.page_size)


def context_limit(config: ModelConfig, stated: int | None) -> int:
    """Tokens of one request, prompt and output. None: what the model is made for.

    Raises UsageError beyond that: positions it never saw give text without sense, and no error.
    """
    if stated is None:
        return config.max_context_len
    if not 1 <= stated <= config.max_context_len:
        raise UsageError(f"--max-context-len {stated}: the model is made for 1 to {config.max_context_len} positions")
    return stated


def kv_dtype(name: str) -> torch.dtype:
    """The dtype of KV rows. Raises UsageError for a name that isn't one of the three."""
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in dtypes:
        raise UsageError(f"--kv-dtype {name}: not one of {', '.join(dtypes)}")
    return dtypes[name]


def _stated(layout: KvLayout, stated_tokens: int, available_bytes: int) -> int:
    if stated_tokens < 1:
        raise UsageError(f"--kv-pool-tokens must be 1 or more: {stated_tokens}")
    needed = pool_bytes(stated_tokens, bytes_per_token=layout.bytes_per_token, page_size=layout.page_size)
    if needed > available_bytes:
        raise UsageError(
            f"a pool of {stated_tokens} tokens takes {needed / 2**30:.2f} GiB, "
            f"{available_bytes / 2**30:.2f} GiB are available",
            hint="lower --kv-pool-tokens",
        )
    return num_pages(stated_tokens, layout.page_size) * layout.page_size
