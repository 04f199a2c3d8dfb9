"""llama.cpp (llama-server, October 2026): from flags to caches and memory, on a device or in host memory alone.

It has no fraction: the context asked for is allocated at the start, and what does not fit does not start. Sources are
those of `llamacpp_cache` and `llamacpp_buffer`, src/llama-model.cpp (which layers go to a device) and common/fit.cpp.
Left out: drafters, image encoders, experts or tensors kept on the host by pattern, --split-mode row and tensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from deepdraft.cost.device import Device
from deepdraft.cost.kv_dtype import FLOAT32, kv_dtype
from deepdraft.cost.kv_family import KvFormat, kv_bytes_per_token
from deepdraft.errors import UsageError
from deepdraft.planner.calibration import Calibration
from deepdraft.planner.judge import judgement
from deepdraft.planner.ledger import Ledger
from deepdraft.planner.llamacpp_cache import LlamacppKv, llamacpp_kv
from deepdraft.planner.llamacpp_memory import device_entries, host_entries, unexplained_entries
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import LlamacppSettings
from deepdraft.planner.shape import Model
from deepdraft.planner.size import size_text
from deepdraft.planner.verdict import Verdict

_NUM_CHECKPOINTS = 32
"""--ctx-checkpoints of each slot."""


def plan_llamacpp(
    model: Model, device: Device | None, settings: LlamacppSettings, calibration: Calibration | None = None
) -> Plan:
    """The plan, of one of `num_devices` equal devices; of the host where `device` is None, or no layer is put on it
    (its memory is the host's then).

    Without a device nothing can be judged: `device_bytes` is what the process needs, and the verdict says so.
    Raises UsageError as `llamacpp_kv` does, for a device without a stated memory, and for a calibration of another
    engine.
    """
    kv = llamacpp_kv(model.shape, settings)
    is_host = device is None or settings.n_gpu_layers == 0
    entries = host_entries(model, kv, settings) if is_host else device_entries(model, device, kv, settings)
    if calibration is not None:
        entries = (*entries, *unexplained_entries(model, device, calibration, is_host=is_host))
    ledger = Ledger(entries)
    used_bytes = ledger.total_bytes("outside", "weights", "pool", "slack")
    device_bytes = used_bytes if device is None else _memory_bytes(device)
    reserve_bytes = device_bytes - used_bytes
    slot_len = min(kv.n_ctx_seq, model.shape.max_context_len or kv.n_ctx_seq)
    per_token = _bytes_per_token(kv)
    form = KvFormat(key=kv_dtype(settings.cache_type_k), value=kv_dtype(settings.cache_type_v), conv=FLOAT32)
    true_per_token = kv_bytes_per_token(model.shape.families, form)
    return Plan(
        engine="llamacpp",
        engine_version="October 2026",
        model=model.shape.name,
        device="host memory" if device is None else device.name,
        settings=settings,
        effective=_effective(kv, settings),
        kv_pool_tokens=kv.num_tokens,
        kv_pool_tokens_range=(kv.num_tokens, kv.num_tokens),
        bytes_per_token=per_token,
        target_bytes_per_token=true_per_token,
        true_bytes_per_token=true_per_token,
        bytes_per_sequence=_fixed_bytes(kv) // kv.num_slots,
        max_request_tokens=slot_len,
        num_full_requests=min(kv.num_tokens // slot_len, kv.num_slots),
        max_context_len=slot_len,
        max_running_requests=kv.num_slots,
        device_bytes=device_bytes,
        ledger=ledger,
        reserve_bytes=reserve_bytes,
        prefill_spike_bytes=0,
        verdict=_unjudged(used_bytes)
        if device is None
        else judgement(
            reserve_bytes=reserve_bytes,
            reserve_error_bytes=ledger.error_bytes("outside", "weights", "slack"),
            spike_of=lambda context_len: (0, 0),
            max_len=slot_len,
        ),
        is_calibrated=calibration is not None,
        notes=_notes(kv, settings, is_host=is_host),
    )


def _memory_bytes(device: Device) -> int:
    if device.memory_bytes is None:
        raise UsageError(f"the memory of {device.name} is not known", hint="give memory=96GB among its figures")
    return int(device.memory_bytes)


def _bytes_per_token(kv: LlamacppKv) -> float:
    """Of the caches that hold every token."""
    growing = ("full", "compressed", "index")
    return sum(cache.num_bytes for cache in kv.caches if cache.kind in growing) / kv.num_tokens


def _fixed_bytes(kv: LlamacppKv) -> int:
    """Of windows and states, all slots."""
    return sum(cache.num_bytes for cache in kv.caches if cache.kind in ("window", "state"))


def _effective(kv: LlamacppKv, settings: LlamacppSettings) -> Mapping[str, Any]:
    return {
        "ctx_size": kv.n_ctx,
        "parallel": kv.num_slots,
        "kv_unified": kv.is_unified,
        "n_ctx_seq": kv.n_ctx_seq,
        "cache_type_k": settings.cache_type_k,
        "cache_type_v": settings.cache_type_v,
        "ubatch_size": min(settings.ubatch_size, settings.batch_size, kv.n_ctx),
    }


def _unjudged(used_bytes: int) -> Verdict:
    return Verdict(
        outcome="unjudged",
        summary=f"Needs {size_text(used_bytes)} of host memory; how much there is was not said: nothing is judged.",
        advice=("Give the host's memory as a device: --device memory=64GiB,bandwidth=50GB/s --n-gpu-layers 0.",),
    )


def _notes(kv: LlamacppKv, settings: LlamacppSettings, *, is_host: bool) -> tuple[str, ...]:
    notes = []
    if kv.is_unified and not kv.is_shared and kv.num_slots > 1:
        notes.append(
            f"DeepSeek-V4's caches are not shared by slots, unified or not: {kv.num_slots} slots take "
            f"{kv.num_slots} times the cache of one (-np 1)."
        )
    elif kv.is_unified and kv.num_slots > 1:
        notes.append(f"{kv.num_slots} slots share one pool: each may use all {kv.n_ctx:,} tokens, together no more.")
    elif kv.num_slots > 1:
        notes.append(f"Each of {kv.num_slots} slots has {kv.n_ctx_seq:,} tokens of its own.")
    fixed_bytes = _fixed_bytes(kv)
    if fixed_bytes:
        notes.append(
            f"Slots with windows or states keep up to {_NUM_CHECKPOINTS} checkpoints of them in host memory "
            f"(--ctx-checkpoints), {size_text(fixed_bytes / kv.num_slots)} each at most."
        )
    if settings.cache_ram_mib and not is_host:
        notes.append(f"Prompts are kept in host memory besides, up to {settings.cache_ram_mib:,} MiB (--cache-ram).")
    if settings.ctx_size is None and not is_host:
        notes.append(
            "Where the device is too small, --fit (on) lowers a context that was not asked for, to 1 GiB of margin."
        )
    if settings.num_devices > 1:
        notes.append("Each device has a compute buffer of its own, however few of the layers it holds.")
    return tuple(notes)
