"""vLLM's own answer for DeepSeek-V4's caches; run by an interpreter that has vLLM (0.32), no GPU needed.

    python vllm_own_v4.py '[{"config": {...}, "num_draft_layers": 0}]' POOL_BYTES IN_FLIGHT LENGTHS...

Every layer's specification comes from the model's own classes, groups and capacity from the cache manager's
functions. Prints, for every case and length, [groups, bytes of a block, tokens, bytes of a request] as JSON.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
import vllm.models.deepseek_v4.attention as attention
import vllm.models.deepseek_v4.compressor as compressor
import vllm.v1.attention.backends.mla.sparse_swa as swa
import vllm.v1.core.kv_cache_utils as own
from vllm.v1.kv_cache_layout import KVCacheLayout

DTYPE = "fp8_ds_mla"


def config(max_len: int, in_flight_len: int, block_size: int) -> Any:
    return SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=max_len),
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1, tensor_parallel_size=1),
        attention_config=SimpleNamespace(hisparse_config=None),
        cache_config=SimpleNamespace(
            cache_dtype=DTYPE,
            block_size=block_size,
            mamba_cache_mode="align",
            num_gpu_blocks_override=None,
            get_resolved_kv_cache_layout=lambda: KVCacheLayout.BLHNC,  # the indexer's first choice
            prefix_cache_retention_interval=None,
        ),
        compilation_config=SimpleNamespace(static_forward_context={}),
        speculative_config=None,
        num_speculative_tokens=0,
        max_in_flight_tokens=in_flight_len,
    )


def specs(model: dict[str, Any], num_draft_layers: int, settings: Any) -> dict[str, Any]:
    """Of every layer, in the order in which layers register."""
    for module in (attention, compressor, swa):
        module.get_current_vllm_config = lambda: settings
    dim, index_dim = model["head_dim"], model["index_head_dim"]
    found: dict[str, Any] = {}
    ratios = [*model["compress_ratios"][: model["num_hidden_layers"]], *[1] * num_draft_layers]
    for layer, stated in enumerate(ratios):
        ratio, name = max(1, stated), f"layers.{layer}"
        found[f"{name}.swa"] = swa.DeepseekV4SWACache(
            dim, model["sliding_window"], torch.uint8, f"{name}.swa", settings.cache_config
        ).get_kv_cache_spec(settings)
        if ratio == 1:
            continue
        layer_of = SimpleNamespace(compress_ratio=ratio, kv_cache_dtype=DTYPE, head_dim=dim)
        found[name] = attention.DeepseekV4Attention.get_kv_cache_spec(layer_of, settings)
        overlap = 2 if ratio == 4 else 1
        found[f"{name}.state"] = compressor.CompressorStateCache(
            2 * overlap * dim, torch.float32, ratio, f"{name}.state"
        ).get_kv_cache_spec(settings)
        if ratio != 4:
            continue
        found[f"{name}.index"] = attention.DeepseekV4IndexerCache(
            index_dim + index_dim // 128 * 4, torch.uint8, f"{name}.index", settings.cache_config, ratio
        ).get_kv_cache_spec(settings)
        found[f"{name}.index_state"] = compressor.CompressorStateCache(
            2 * overlap * index_dim, torch.float32, ratio, f"{name}.index_state"
        ).get_kv_cache_spec(settings)
    return found


def capacity(case: dict[str, Any], max_len: int, pool_bytes: int, in_flight_len: int) -> list[int]:
    settings = config(max_len, in_flight_len, case.get("block_size", 256))
    groups = own.get_kv_cache_groups(settings, specs(case["config"], case.get("num_draft_layers", 0), settings))
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
