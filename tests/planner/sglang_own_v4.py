"""SGLang's own sizing of DeepSeek-V4's pools; run by an interpreter that has SGLang (0.5.23), no GPU needed.

    python sglang_own_v4.py '[{"config": {...}, "available": 40000000000, "context_len": 200000}]'

Prints, for every case, what `DSV4PoolConfigurator` answers and the bytes that `DeepSeekV4TokenToKVPool` then
allocates for target and draft, counted on torch's meta device. Only the settings around them are stand-ins: the
formulas are the engine's.
"""

from __future__ import annotations

import json
import os
import sys
from types import SimpleNamespace
from typing import Any

import sglang.srt.layers.attention.dsv4.unified_kv_gate as gate
import sglang.srt.mem_cache.deepseek_v4_memory_pool as pools
import sglang.srt.model_executor.pool_configurator as own
import torch

_NONE = SimpleNamespace(is_none=lambda: True, is_eagle=lambda: False, is_dspark=lambda: False)
_EAGLE = SimpleNamespace(is_none=lambda: False, is_eagle=lambda: True, is_dspark=lambda: False)


def settings(case: dict[str, Any]) -> None:
    """Put the case's settings where the engine reads them."""
    drafted = case.get("num_draft_tokens", 0)
    bags = {
        "spec": SimpleNamespace(
            speculative_algorithm="EAGLE" if drafted else None,
            speculative_num_draft_tokens=drafted or None,
            speculative_num_steps=3,
            speculative_eagle_topk=1,
        ),
        "memory": SimpleNamespace(enable_hisparse=False, disable_radix_cache=False, enable_unified_memory=False),
        "schedule": SimpleNamespace(
            max_running_requests=case.get("max_running", 256),
            swa_full_tokens_ratio=case.get("swa_ratio", 0.1),
            _swa_full_tokens_ratio_explicitly_set=True,
            swa_prefix_tails=None,
            chunked_prefill_size=8192,
            disable_overlap_schedule=False,
            page_size=256,
        ),
        "disagg": SimpleNamespace(disaggregation_mode="null", disaggregation_decode_extra_slots=0),
        "exec": SimpleNamespace(
            kernel=SimpleNamespace(
                dsv4_attn_backend=case.get("backend", "flashmla"), enable_deepseek_v4_fp4_indexer=False
            ),
            features=SimpleNamespace(enable_encoder_swa_bounded_replay=False),
            graph=SimpleNamespace(cuda_graph_config=None),
        ),
    }
    for module in (own, pools):
        for name, bag in bags.items():
            if hasattr(module, f"get_{name}"):
                setattr(module, f"get_{name}", lambda bag=bag: bag)
    own.max_speculative_num_draft_tokens = lambda: drafted or None
    is_unified, is_fp8 = bool(case.get("unified")), bool(case.get("unified_fp8"))
    gate.is_unified_kv_triton = lambda: is_unified
    gate.is_unified_kv_fp8 = lambda: is_unified and is_fp8
    pools.get_platform = lambda: SimpleNamespace(is_sm120=False)


def sized(case: dict[str, Any]) -> tuple[Any, Any]:
    """The configurator and its answer for the bytes available."""
    config = case["config"]
    num_layers = config["num_hidden_layers"]
    configurator = own.DSV4PoolConfigurator(
        SimpleNamespace(
            kv_cache_dtype_str="fp8_e4m3",
            model_config=SimpleNamespace(
                qk_nope_head_dim=config["head_dim"] - config["qk_rope_head_dim"],
                qk_rope_head_dim=config["qk_rope_head_dim"],
                index_head_dim=config["index_head_dim"],
                context_len=case["context_len"],
                compress_ratios=config["compress_ratios"],
                window_size=config["sliding_window"],
                hf_config=SimpleNamespace(kv_source_layer_ids=[]),
            ),
            spec_algorithm=_EAGLE if case.get("num_draft_tokens") else _NONE,
            layer_info=SimpleNamespace(start_layer=0, end_layer=num_layers),
            pp_size=1,
            sliding_window_size=config["sliding_window"],
            page_size=256,
            attn_dp_size=1,
            spec_aux_config=None,
        )
    )
    found = configurator.calculate_pool_sizes(case["available"], 256)
    running = min(case.get("max_running", 256), found.max_total_num_tokens // 2)
    found.max_running_requests = running
    return configurator, configurator.finalize_with_max_running_requests(found)


def allocated(case: dict[str, Any], found: Any, *, is_draft: bool) -> int:
    """Bytes of the pool's tensors, never backed by memory."""
    config = case["config"]
    pool = pools.DeepSeekV4TokenToKVPool(
        max_num_reqs=found.max_running_requests,
        num_req_slots=found.max_running_requests + 1,
        swa_size=found.swa_max_total_num_tokens,
        c4_size=0 if is_draft else found.c4_max_total_num_tokens,
        c128_size=0 if is_draft else found.c128_max_total_num_tokens,
        c4_state_pool_size=0 if is_draft else found.c4_state_pool_size,
        c128_state_pool_size=0 if is_draft else found.c128_state_pool_size,
        page_size=256,
        swa_page_size=256,
        sliding_window=config["sliding_window"],
        dtype=torch.float8_e4m3fn,
        c4_state_dtype=torch.float32,
        c128_state_dtype=torch.float32,
        qk_nope_head_dim=config["head_dim"] - config["qk_rope_head_dim"],
        qk_rope_head_dim=config["qk_rope_head_dim"],
        indexer_head_dim=config["index_head_dim"],
        layer_num=1 if is_draft else config["num_hidden_layers"],
        device="meta",
        enable_memory_saver=False,
        compression_ratios=[0] if is_draft else config["compress_ratios"],
        start_layer=0,
        end_layer=1 if is_draft else config["num_hidden_layers"],
        unified_fp8=bool(case.get("unified_fp8")) if case.get("unified") else None,
        kv_source_layers=[],
        full_size=found.full_max_total_num_tokens,
        is_draft_worker=is_draft,
        online_mtp_max_draft_tokens=case.get("num_draft_tokens", 0),
    )
    seen: dict[int, int] = {}
    _count(pool, seen, set())
    return sum(seen.values())


def _count(thing: Any, seen: dict[int, int], visited: set[int]) -> None:
    if isinstance(thing, torch.Tensor):
        storage = thing.untyped_storage()
        seen[storage._cdata] = storage.nbytes()
        return
    if id(thing) in visited:
        return
    visited.add(id(thing))
    if isinstance(thing, dict):
        inner = list(thing.values())
    elif isinstance(thing, list | tuple):
        inner = list(thing)
    elif type(thing).__module__.startswith("sglang.srt.mem_cache"):
        inner = list(vars(thing).values())
    else:
        return
    for each in inner:
        _count(each, seen, visited)


def answer(case: dict[str, Any]) -> dict[str, Any]:
    settings(case)
    configurator, found = sized(case)
    return {
        "bytes_per_full_token": configurator.bytes_per_full_token,
        "full": found.full_max_total_num_tokens,
        "swa": found.swa_max_total_num_tokens,
        "c4": found.c4_max_total_num_tokens,
        "c128": found.c128_max_total_num_tokens,
        "c4_state": found.c4_state_pool_size,
        "c128_state": found.c128_state_pool_size,
        "allocated": allocated(case, found, is_draft=False),
        "draft_allocated": allocated(case, found, is_draft=True) if case.get("num_draft_tokens") else 0,
    }


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(json.dumps([answer(case) for case in json.loads(sys.argv[1])]))
