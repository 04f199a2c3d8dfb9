"""A plan held against what a running server reports. Where the server says nothing, nothing is checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deepdraft.planner.flag import flag_name
from deepdraft.planner.plan import Plan

_POOL_TOLERANCE_FRAC = 0.02
_BYTES_TOLERANCE_FRAC = 0.02
_SETTINGS = {
    "sglang": (
        "mem_fraction_static", "chunked_prefill_size", "max_running_requests", "context_length", "kv_cache_dtype",
        "page_size", "tp_size", "attention_backend", "speculative_algorithm", "cuda_graph_max_bs",
    ),
    "vllm": ("gpu_memory_utilization", "block_size", "max_model_len", "max_num_seqs", "max_num_batched_tokens"),
    "llamacpp": (),
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One figure, planned and reported."""

    name: str
    planned: float | int | str
    reported: float | int | str
    agrees: bool
    remark: str = ""
    """Why it may differ, or what follows; empty where nothing needs saying."""

    @property
    def difference_frac(self) -> float | None:
        """Reported over planned, less 1; None for what is no amount."""
        if isinstance(self.planned, str) or isinstance(self.reported, str) or not self.planned:
            return None
        return self.reported / self.planned - 1


def checks(plan: Plan, reported: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Check, ...]:
    """Settings first, as the figures mean little where they differ; then the figures.

    reported: figures by our names (kv_pool_tokens, max_context_len, num_slots, weight_bytes, kv_cache_bytes,
    graph_bytes, available_before_weights_bytes), None or missing where the server does not tell.
    settings: the server's own, by its names.
    """
    return (*_settings_checks(plan, settings), *_figure_checks(plan, reported))


def _settings_checks(plan: Plan, settings: Mapping[str, Any]) -> list[Check]:
    found = []
    for name in _SETTINGS[plan.engine]:
        planned = getattr(plan.settings, name, None)
        if planned is None or planned == "auto":
            planned = plan.effective.get(name)
        told = settings.get(name)
        if planned is None or told is None or told == "auto":
            continue
        found.append(
            Check(
                name=flag_name(plan.engine, name),
                planned=planned,
                reported=told,
                agrees=_is_same(planned, told),
                remark="" if _is_same(planned, told) else "the server runs with another setting than was planned",
            )
        )
    return found


def _figure_checks(plan: Plan, reported: Mapping[str, Any]) -> list[Check]:
    found = []
    pool = reported.get("kv_pool_tokens")
    if pool is not None:
        found.append(_pool_check(plan, int(pool)))
    limit = reported.get("max_context_len")
    if limit is not None:
        found.append(_amount("context limit (tokens)", plan.max_context_len, int(limit), 0.0))
    slots = reported.get("num_slots")
    if slots is not None:
        found.append(_amount("requests at once", plan.max_running_requests, int(slots), 0.0))
    sums = {
        "weight_bytes": ("weights (bytes)", plan.ledger.total_bytes("weights"), plan.ledger.error_bytes("weights")),
        "kv_cache_bytes": ("KV pool (bytes)", plan.ledger.total_bytes("pool"), 0),
    }
    for name, (title, planned, error_bytes) in sums.items():
        told = reported.get(name)
        if told is not None and planned:
            found.append(_amount(title, planned, int(told), _BYTES_TOLERANCE_FRAC + error_bytes / planned))
    return found


def _pool_check(plan: Plan, pool: int) -> Check:
    low, high = plan.kv_pool_tokens_range
    tolerance = _POOL_TOLERANCE_FRAC * plan.kv_pool_tokens
    agrees = low - tolerance <= pool <= high + tolerance
    remark = ""
    if not agrees and not plan.is_calibrated:
        remark = "calibrate the plan by this start: --server URL or --server-log FILE in place of --check"
    elif not agrees:
        remark = "the start differs from the one that the plan was calibrated by"
    return Check(name="KV pool (tokens)", planned=plan.kv_pool_tokens, reported=pool, agrees=agrees, remark=remark)


def _amount(name: str, planned: int, reported: int, tolerance_frac: float) -> Check:
    return Check(
        name=name,
        planned=planned,
        reported=reported,
        agrees=abs(reported - planned) <= tolerance_frac * planned,
    )


def _is_same(planned: Any, told: Any) -> bool:
    if isinstance(planned, str) or isinstance(told, str):
        one, other = str(planned).lower(), str(told).lower()
        try:
            return abs(float(one) - float(other)) < 1e-9
        except ValueError:
            return one == other
    return bool(abs(planned - told) < 1e-9)
