"""What a start-up log says of memory, by our names, and in sentences."""

from __future__ import annotations

from collections.abc import Mapping

GIB = 2**30
_WORDS = {
    "available_before_weights_bytes": "free before the weights",
    "weight_bytes": "weights",
    "kv_cache_bytes": "KV cache",
    "available_after_pool_bytes": "free after the KV pool",
    "graph_bytes": "CUDA graphs",
    "activation_bytes": "activations at their peak",
    "compute_buffer_bytes": "compute buffers",
    "reserve_bytes": "left beside weights, pool and graphs",
}


def memory_notes(memory: Mapping[str, int], kv_pool_tokens: int | None) -> list[tuple[str, str]]:
    """One note for what the log tells; none where it tells nothing."""
    parts = [f"{words} {memory[name] / GIB:.2f} GiB" for name, words in _WORDS.items() if name in memory]
    if kv_pool_tokens is not None:
        parts.insert(0, f"KV pool {kv_pool_tokens:,} tokens")
    return [("memory", "; ".join(parts))] if parts else []
