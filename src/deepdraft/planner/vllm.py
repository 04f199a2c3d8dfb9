"""vLLM 0.20 to 0.33: from flags to its KV pool. `vllm_budget` has the formula, `vllm_blocks` what a request takes.

Source: vLLM 0.32.0 (each part names its files). Left out: encoder caches, LoRA, sleep mode, prefill context
parallelism, KV connectors and offloading, experts shared out over data-parallel ranks.
"""

from __future__ import annotations

from deepdraft.cost.device import Device
from deepdraft.cost.kv_family import kv_bytes_per_token
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.ledger import Ledger, LedgerEntry
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import VllmSettings
from deepdraft.planner.shape import Model
from deepdraft.planner.vllm_blocks import BlockLayout
from deepdraft.planner.vllm_budget import budget_error_bytes, fixed_entries, requested_bytes
from deepdraft.planner.vllm_choice import VllmChoice, vllm_choice
from deepdraft.planner.vllm_profile import late_entries, spike_entries
from deepdraft.planner.vllm_verdict import vllm_notes, vllm_verdict


def plan_vllm(model: Model, device: Device, settings: VllmSettings, calibration: Calibration | None = None) -> Plan:
    """The plan, of one device and one data-parallel rank.

    `kv_pool_tokens` is the log's "GPU KV cache size": requests of max_model_len that fit, times max_model_len.
    Raises UsageError as `vllm_choice` does, and for a calibration of another engine or number of ranks.
    """
    choice = vllm_choice(model, device, settings)
    layout, tp_size = choice.layout, settings.tensor_parallel_size
    dcp_size = settings.decode_context_parallel_size
    fixed = fixed_entries(choice, calibration)
    available = requested_bytes(choice) - Ledger(fixed).total_bytes("weights", "slack")
    if settings.kv_cache_memory_bytes is not None:
        available = settings.kv_cache_memory_bytes
    spike = spike_entries(choice, choice.max_len)
    ledger = Ledger((*fixed, _pool_entry(available, layout), *late_entries(choice), *spike))
    reserve_bytes = choice.device_bytes - ledger.total_bytes("outside", "weights", "pool", "slack")
    error = budget_error_bytes(choice, ledger)
    low, tokens, high = (_pool_tokens(choice, available + off) for off in (-error, 0, error))
    return Plan(
        engine="vllm",
        engine_version="0.20 to 0.33",
        model=model.shape.name,
        device=device.name,
        settings=settings,
        effective=choice.effective,
        kv_pool_tokens=tokens,
        kv_pool_tokens_range=(low, high),
        bytes_per_token=layout.bytes_per_token,
        target_bytes_per_token=kv_bytes_per_token(model.shape.families, choice.form, tp_size) / dcp_size,
        true_bytes_per_token=kv_bytes_per_token(choice.families, choice.form, tp_size) / dcp_size,
        bytes_per_sequence=layout.fixed_bytes(choice.max_len),
        max_request_tokens=layout.longest(max(available, 0), choice.max_len),
        num_full_requests=min(int(layout.num_requests(max(available, 0), choice.max_len)), choice.num_seqs),
        max_context_len=choice.max_len,
        max_running_requests=choice.num_seqs,
        device_bytes=choice.device_bytes,
        ledger=ledger,
        reserve_bytes=reserve_bytes,
        prefill_spike_bytes=sum(entry.num_bytes for entry in spike),
        verdict=vllm_verdict(choice, ledger, reserve_bytes, available),
        is_calibrated=calibration is not None,
        notes=vllm_notes(choice, is_calibrated=calibration is not None),
    )


def _pool_tokens(choice: VllmChoice, pool_bytes: int) -> int:
    return int(choice.layout.num_requests(max(pool_bytes, 0), choice.max_len) * choice.max_len)


def _pool_entry(available_bytes: int, layout: BlockLayout) -> LedgerEntry:
    num_blocks = max(available_bytes, 0) // layout.block_bytes
    return LedgerEntry(
        name="KV pool",
        num_bytes=num_blocks * layout.block_bytes,
        place="pool",
        certainty="formula",
        source=f"{num_blocks:,} blocks of {layout.block_bytes:,} bytes",
    )
