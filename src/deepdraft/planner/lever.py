"""Single flags that free memory: which there are in each engine, and how much each frees by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from deepdraft.errors import UsageError
from deepdraft.planner.flag import changed
from deepdraft.planner.plan import Plan
from deepdraft.planner.settings import EngineSettings, LlamacppSettings, SglangSettings, VllmSettings

PlanOf = Callable[[EngineSettings], Plan]
"""From settings to the plan they make; model, device and calibration are in it."""

_SMALLEST_CHUNK = 1024
_FEW_REQUESTS = 8
_CACHE_CAUTION = "changes what the model computes: check its answers"


@dataclass(frozen=True, slots=True)
class Change:
    """One flag, before and after; None is the engine's own choice."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class Lever:
    """One change by itself."""

    change: Change
    freed_bytes: int
    """What it adds to the room beside weights, pool and spike, at the same number of pool tokens."""
    caution: str | None = None
    """What it costs besides speed; None: nothing known."""


Candidate = tuple[Change, str | None]
"""A change and its caution."""
_Found = Iterator[tuple[str, Any, str | None]]


def freed_by_flag(
    plan_of: PlanOf, start: EngineSettings, *, target_context_len: int | None = None, num_requests: int = 1
) -> tuple[Lever, ...]:
    """What each flag by itself frees, most first; those that free nothing or that the engine refuses are left out."""
    before = plan_of(start)
    levers = []
    for change, caution in candidates(before, start, target_context_len or before.max_context_len, num_requests):
        after = allowed_plan(plan_of, changed(start, {change.field: change.after}))
        if after is None:
            continue
        freed_bytes = round(_room(after, before.kv_pool_tokens) - _room(before, before.kv_pool_tokens))
        if freed_bytes > 0:
            levers.append(Lever(change, freed_bytes, caution))
    return tuple(sorted(levers, key=lambda lever: -lever.freed_bytes))


def allowed_plan(plan_of: PlanOf, settings: EngineSettings) -> Plan | None:
    """The plan of a change to settings that have one. None where the engine refuses the change: keys of another type
    than values, say, where the keys hold the values."""
    try:
        return plan_of(settings)
    except UsageError:
        return None


def _room(plan: Plan, num_tokens: int) -> float:
    """Bytes beside weights, spike and a pool of so many tokens."""
    free = plan.reserve_bytes - plan.prefill_spike_bytes + plan.ledger.total_bytes("pool")
    return free - num_tokens * plan.bytes_per_token


def candidates(plan: Plan, settings: EngineSettings, target_len: int, num_requests: int) -> tuple[Candidate, ...]:
    """Every single change that can free memory while so many requests of that length still run, mild values before
    strong ones. `plan`: of those settings."""
    match settings:
        case SglangSettings():
            found = _sglang_levers(plan, settings, target_len, num_requests)
        case VllmSettings():
            found = _vllm_levers(plan, settings, target_len, num_requests)
        case LlamacppSettings():
            found = _llamacpp_levers(settings)
    return tuple((Change(name, getattr(settings, name), after), caution) for name, after, caution in found)


def _sglang_levers(plan: Plan, settings: SglangSettings, target_len: int, num_requests: int) -> _Found:
    chunk = int(plan.effective.get("chunked_prefill_size") or settings.chunked_prefill_size or 8192)
    for size in (chunk // 2, chunk // 4):
        if size >= _SMALLEST_CHUNK:
            yield "chunked_prefill_size", size, None
    if not settings.expandable_segments:
        yield "expandable_segments", True, None
    few = max(num_requests, _FEW_REQUESTS)
    if plan.max_running_requests > few:
        yield "max_running_requests", few, None
    if plan.max_context_len > target_len:
        yield "context_length", target_len, None
    if plan.effective.get("attention_backend") == "dsv4" and not settings.dsv4_unified_kv:
        yield "swa_full_tokens_ratio", plan.effective["swa_full_tokens_ratio"] / 2, "keeps fewer prefixes for reuse"
    elif settings.kv_cache_dtype in ("auto", "bfloat16"):
        yield "kv_cache_dtype", "fp8_e4m3", _CACHE_CAUTION


def _vllm_levers(plan: Plan, settings: VllmSettings, target_len: int, num_requests: int) -> _Found:
    chunk = int(plan.effective.get("max_num_batched_tokens") or settings.max_num_batched_tokens or 8192)
    few = max(num_requests, _FEW_REQUESTS)
    for size in (chunk // 2, chunk // 4):
        if size >= max(_SMALLEST_CHUNK, few):
            yield "max_num_batched_tokens", size, None
    if plan.max_running_requests > few:
        yield "max_num_seqs", few, None
    if plan.max_context_len > target_len:
        yield "max_model_len", target_len, None
    if settings.kv_cache_dtype in ("auto", "bfloat16"):
        yield "kv_cache_dtype", "fp8", _CACHE_CAUTION
    if not settings.enforce_eager:
        yield "enforce_eager", True, "decodes slower, without CUDA graphs"


def _llamacpp_levers(settings: LlamacppSettings) -> _Found:
    if settings.ubatch_size > 128:
        yield "ubatch_size", settings.ubatch_size // 2, None
        yield "ubatch_size", settings.ubatch_size // 4, None
    if settings.swa_full:
        yield "swa_full", False, None
    if settings.cache_type_k == "f16":
        yield "cache_type_k", "q8_0", _CACHE_CAUTION
    if settings.cache_type_v == "f16":
        yield "cache_type_v", "q8_0", _CACHE_CAUTION
