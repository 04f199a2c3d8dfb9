"""vLLM's own functions on layers given as JSON; run by an interpreter that has vLLM (0.32).

    python vllm_own_groups.py '[{"block_len": 16, "layers": [["full", 10, 16, 128]]}]' POOL_BYTES IN_FLIGHT LENGTHS...

Layers are kind, number, heads, width (of a latent row: its whole width), and what the kind needs besides. Prints, for
every case and length, [groups, bytes of a block, tokens, bytes of a request] as JSON.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import torch
import vllm.v1.core.kv_cache_utils as own
from vllm.v1.kv_cache_interface import (
    ChunkedLocalAttentionSpec,
    FullAttentionSpec,
    MambaSpec,
    MLAAttentionSpec,
    SlidingWindowSpec,
)
from vllm.v1.kv_cache_layout import KVCacheLayout

BF16 = torch.bfloat16
LAYOUT = next(each for each in KVCacheLayout if not each.is_block_outermost)


def config(max_len: int, in_flight_len: int) -> SimpleNamespace:
    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=max_len),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, tensor_parallel_size=1),
        attention_config=SimpleNamespace(hisparse_config=None),
        cache_config=SimpleNamespace(
            mamba_cache_mode="align",
            num_gpu_blocks_override=None,
            get_resolved_kv_cache_layout=lambda: LAYOUT,
            prefix_cache_retention_interval=None,
        ),
        speculative_config=None,
        num_speculative_tokens=0,
        max_in_flight_tokens=in_flight_len,
    )


def specs(layer_sets: list[list], block_len: int) -> dict:
    found = {}
    for index, (kind, num_layers, heads, width, *rest) in enumerate(layer_sets):
        common = {"block_size": block_len, "num_kv_heads": heads, "head_size": width, "dtype": BF16}
        for layer in range(num_layers):
            name = f"{index}.{layer}"
            if kind == "full":
                found[name] = FullAttentionSpec(**common)
            elif kind == "latent":
                found[name] = MLAAttentionSpec(**common)
            elif kind == "window":
                found[name] = SlidingWindowSpec(**common, sliding_window=rest[0])
            elif kind == "chunk":
                found[name] = ChunkedLocalAttentionSpec(**common, attention_chunk_size=rest[0])
            else:  # a state of heads x width x width in float32, and `rest` numbers of convolution
                found[name] = MambaSpec(
                    block_size=block_len,
                    shapes=((rest[0],), (heads, width, width)),
                    dtypes=(BF16, torch.float32),
                    page_size_padded=rest[1],
                    mamba_cache_mode="align",
                )
    return found


def capacity(case: dict, max_len: int, pool_bytes: int, in_flight_len: int) -> list[int]:
    settings = config(max_len, in_flight_len)
    groups = own.get_kv_cache_groups(settings, specs(case["layers"], case["block_len"]))
    pool = own.get_kv_cache_config_from_groups(settings, groups, pool_bytes)
    tokens, _ = own.get_kv_cache_capacity(settings, pool)
    return [
        len(groups),
        own._pool_bytes_per_block(settings, groups),
        tokens,
        own._max_memory_usage_bytes_from_groups(settings, groups),
    ]


if __name__ == "__main__":
    cases, (pool, in_flight, *lens) = json.loads(sys.argv[1]), map(int, sys.argv[2:])
    print(json.dumps([[capacity(case, length, pool, in_flight) for length in lens] for case in cases]))
